package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/lab/container"
)

// plan is what package sandbox asks for; it writes the same fields.
type plan struct {
	Name      string            // host name, and the name of the cgroups
	Lower     string            // directory or squashfs file that holds the root tree
	Offset    int64             // where the squashfs begins in Lower
	DiskImage string            // file whose root is meant instead; may be empty
	Disk      bool              // the whole root outlives a power cut, not Keep alone
	Work      string            // directory for mount points
	Data      string            // directory for what outlives a power cut
	Keep      []string          // directories of the root that lie in Data
	Add       map[string]string // path in the root: file or directory of the host, read-only
}

// runSandbox becomes the first process of a sandbox. The namespaces but the cgroups' exist already: that one can
// only be made once the process is in the cgroups that shall be its root, so it starts itself again.
func runSandbox(stage, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}

	var p plan
	if err := json.Unmarshal(text, &p); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	if stage == "sandbox" {
		runtime.LockOSThread()
		if err := container.EnterCgroups(p.Name); err != nil {
			return err
		}
		if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
			return fmt.Errorf("unshare cgroups: %w", err)
		}
		// The wall clock is this machine's and nobody's in the sandbox to set.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_TIME, 0, 0, 0); err != nil {
			return fmt.Errorf("give up setting the clock: %w", err)
		}

		return unix.Exec("/proc/self/exe", []string{os.Args[0], "sandbox-unshared", file}, os.Environ())
	}

	root, err := p.mount()
	if err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(p.Name)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if err := container.Pivot(root); err != nil {
		return fmt.Errorf("change root to %s: %w", root, err)
	}

	setSysctls()
	if err := makeUsers(); err != nil {
		return err
	}
	// The parent holds the other end: when it is gone, so is the sandbox.
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()

	return serve()
}

// mount puts the root together below p.Work and returns it.
func (p plan) mount() (string, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", fmt.Errorf("make mounts private: %w", err)
	}

	lower := filepath.Join(p.Work, "lower")
	if err := container.MountRoot(p.Lower, p.Offset, lower); err != nil {
		return "", err
	}

	if p.DiskImage != "" {
		inner := filepath.Join(p.Work, "inner")
		if err := errorsFirst(os.MkdirAll(inner, 0o755), mountDisk(p.DiskImage, inner)); err != nil {
			return "", err
		}
		lower = inner
	}

	upper, root := filepath.Join(p.Work, "upper"), filepath.Join(p.Work, "root")
	todo := []struct{ source, target, fs, data string }{
		{"tmpfs", upper, "tmpfs", "mode=0755"},
		{"overlay", root, "overlay", ""},
		{"proc", root + "/proc", "proc", ""},
		{"sysfs", root + "/sys", "sysfs", ""},
		{"cgroup", root + "/sys/fs/cgroup", "tmpfs", "mode=0755"},
		{"tmpfs", root + "/run", "tmpfs", "mode=0755"},
		{"tmpfs", root + "/tmp", "tmpfs", "mode=1777"},
	}
	if p.Disk {
		upper = filepath.Join(p.Data, "disk")
		todo = todo[1:]
	}

	for _, m := range todo {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return "", err
		}
		if m.fs == "overlay" {
			if err := errorsFirst(os.MkdirAll(upper+"/up", 0o755), os.MkdirAll(upper+"/work", 0o755)); err != nil {
				return "", err
			}
			m.data = fmt.Sprintf("lowerdir=%s,upperdir=%s/up,workdir=%s/work", lower, upper, upper)
		}
		if err := unix.Mount(m.source, m.target, m.fs, 0, m.data); err != nil {
			return "", fmt.Errorf("mount %s on %s: %w", m.fs, m.target, err)
		}
	}

	if err := unix.Mount("/dev", root+"/dev", "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return "", fmt.Errorf("bind /dev: %w", err)
	}
	if err := container.MountCgroups(root); err != nil {
		return "", err
	}

	for _, dir := range p.Keep {
		if err := container.Bind(filepath.Join(p.Data, dir), root+dir, 0); err != nil {
			return "", err
		}
	}

	for path, source := range p.Add {
		if err := container.Bind(source, root+path, unix.MS_RDONLY); err != nil {
			return "", err
		}
	}

	// As firstlight-init leaves it: the root without what is laid over it.
	if err := container.Bind(lower, root+stick.LowerDir, unix.MS_RDONLY); err != nil {
		return "", err
	}

	return root, nil
}

// setSysctls applies what the root's sysctl.d says of the network: that alone is this sandbox's own.
func setSysctls() {
	files, _ := filepath.Glob("/usr/lib/sysctl.d/*.conf")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			key, value, found := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "-"), "=")
			key = strings.TrimSpace(key)
			if !found || !strings.HasPrefix(key, "net.") || strings.Contains(key, "*") {
				continue
			}

			path := "/proc/sys/" + strings.ReplaceAll(key, ".", "/")
			if err := os.WriteFile(path, []byte(strings.TrimSpace(value)), 0); err != nil {
				fmt.Fprintln(os.Stderr, "sandbox: sysctl:", err)
			}
		}
	}
}

// ownUsers are the users that the appliance has beside Debian's.
const ownUsers = "/usr/lib/sysusers.d/firstlight.conf"

// makeUsers makes them as systemd does at every boot: the root's /etc is as the image has it.
func makeUsers() error {
	if _, err := os.Stat(ownUsers); os.IsNotExist(err) {
		return nil
	}
	if out, err := exec.Command("/usr/bin/systemd-sysusers", ownUsers).CombinedOutput(); err != nil {
		return fmt.Errorf("make users of %s: %w: %s", ownUsers, err, out)
	}

	return nil
}

func errorsFirst(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}
