package try

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

// What a rack needs to be on: the appliance keeps some 1.5 GiB in memory and writes as much to its DATA.
const (
	leastMemoryMiB = 3 << 10
	leastDiskMiB   = 4 << 10
)

// machine is what matters of the machine that a rack is to run on.
type machine struct {
	root        bool
	memoryMiB   int // available
	diskMiB     int // free where the rack's directory is
	cgroups     bool
	namespaces  []string // that the kernel lacks
	filesystems string   // /proc/filesystems
	programs    []string // that are missing
}

var errNoRoot = errors.New("needs root for namespaces and mounts: sudo firstlight try")

// CheckRoot refuses whoever may not enter a rack.
func CheckRoot() error {
	if os.Geteuid() != 0 {
		return errNoRoot
	}
	return nil
}

// refuse says why no rack can be on there, and what to do about it; nil if one can.
func (m machine) refuse() error {
	switch {
	case !m.root:
		return errNoRoot
	case len(m.namespaces) > 0:
		return fmt.Errorf("the kernel has no %s namespaces", strings.Join(m.namespaces, ", no "))
	case !m.cgroups:
		return errors.New("no control groups are mounted below /sys/fs/cgroup; systemd mounts them at boot")
	case len(m.programs) > 0:
		return fmt.Errorf("%s is not installed; apt-get install iproute2 util-linux coreutils", m.programs[0])
	case !m.hasFileSystem("overlay") || !m.hasFileSystem("squashfs"):
		return errors.New("the kernel has no overlay or no squashfs; modprobe -a overlay squashfs loop")
	case m.memoryMiB < leastMemoryMiB:
		return fmt.Errorf("%d MiB of memory are available, %d are needed; end something else", m.memoryMiB, leastMemoryMiB)
	case m.diskMiB < leastDiskMiB:
		return fmt.Errorf("%d MiB are free, %d are needed; name another directory with --dir", m.diskMiB, leastDiskMiB)
	}
	return nil
}

func (m machine) hasFileSystem(name string) bool {
	for line := range strings.Lines(m.filesystems) {
		words := strings.Fields(line)
		if len(words) > 0 && words[len(words)-1] == name {
			return true
		}
	}
	return false
}

// lookAt looks at this machine, for a rack in dir.
func lookAt(dir string) (machine, error) {
	m := machine{root: os.Geteuid() == 0}
	for _, name := range []string{"mnt", "net", "pid", "uts", "ipc", "cgroup"} {
		if _, err := os.Stat("/proc/self/ns/" + name); err != nil {
			m.namespaces = append(m.namespaces, name)
		}
	}
	for _, name := range []string{"ip", "nsenter", "sleep"} {
		if _, err := exec.LookPath(name); err != nil {
			m.programs = append(m.programs, name)
		}
	}

	_, noUnified := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	_, noMemory := os.Stat("/sys/fs/cgroup/memory")
	m.cgroups = noUnified == nil || noMemory == nil

	if m.root { // they are not there until something asks for them
		_ = exec.Command("modprobe", "-a", "overlay", "squashfs", "loop").Run()
	}
	text, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return m, err
	}
	m.filesystems = string(text)

	meminfo, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return m, err
	}
	m.memoryMiB = availableMiB(string(meminfo))
	m.diskMiB, err = freeMiB(dir)
	return m, err
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
