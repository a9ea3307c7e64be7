package container

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Host is what matters of a machine on which the appliance shall run in namespaces.
type Host struct {
	Root        bool     // this process is root's
	Cgroups     bool     // control groups are mounted
	MemoryMiB   int      // available
	DiskMiB     int      // free where the appliance's directory is
	Namespaces  []string // kinds that the kernel lacks
	FileSystems string   // /proc/filesystems
}

// HasFileSystem reports whether the kernel has a file system.
func (h Host) HasFileSystem(name string) bool {
	for line := range strings.Lines(h.FileSystems) {
		words := strings.Fields(line)
		if len(words) > 0 && words[len(words)-1] == name {
			return true
		}
	}
	return false
}

// ReadHost reads what this machine is, for an appliance in dir, which need not exist yet.
func ReadHost(dir string) (Host, error) {
	h := Host{Root: os.Geteuid() == 0}
	for _, name := range []string{"mnt", "net", "pid", "uts", "ipc", "cgroup"} {
		if _, err := os.Stat("/proc/self/ns/" + name); err != nil {
			h.Namespaces = append(h.Namespaces, name)
		}
	}

	_, noUnified := os.Stat(CgroupRoot + "/cgroup.controllers")
	_, noMemory := os.Stat(CgroupRoot + "/memory")
	h.Cgroups = noUnified == nil || noMemory == nil

	if h.Root { // they are not there until something asks for them
		_ = exec.Command("modprobe", "-a", "overlay", "squashfs", "loop").Run()
	}
	text, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return h, err
	}
	h.FileSystems = string(text)

	meminfo, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return h, err
	}
	h.MemoryMiB = availableMiB(string(meminfo))
	h.DiskMiB, err = freeMiB(dir)
	return h, err
}

// availableMiB is the line MemAvailable of /proc/meminfo.
func availableMiB(meminfo string) int {
	for line := range strings.Lines(meminfo) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "MemAvailable:" {
			kib, _ := strconv.Atoi(words[1])
			return kib >> 10
		}
	}
	return 0
}

// freeMiB is what is free where dir is or will be.
func freeMiB(dir string) (int, error) {
	for {
		var fs unix.Statfs_t
		err := unix.Statfs(dir, &fs)
		if errors.Is(err, unix.ENOENT) && dir != filepath.Dir(dir) {
			dir = filepath.Dir(dir)
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("look for room in %s: %w", dir, err)
		}
		return int(fs.Bavail * uint64(fs.Bsize) >> 20), nil
	}
}
