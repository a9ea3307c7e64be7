package container

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/stick"
)

// Plan is a root tree of the appliance that shall run in namespaces, with its own systemd as their first process.
type Plan struct {
	Root    string   `json:"root"`              // what FindRoot found
	Offset  int64    `json:"offset"`            // of the squashfs in Root
	Mount   string   `json:"mount"`             // directory for mount points
	Data    string   `json:"data"`              // what becomes DATA
	Site    string   `json:"site"`              // what becomes SITE
	Daemon  string   `json:"daemon"`            // in place of the root's; "": none
	Console string   `json:"console"`           // terminal that becomes /dev/console
	Cgroup  string   `json:"cgroup"`            // its control groups, as EnterCgroups takes it
	Parents []string `json:"parents,omitempty"` // groups that those are below, as EnterCgroups takes them
	User    bool     `json:"user"`              // it runs for an ordinary user, as root of a user namespace
	Kind    string   `json:"kind"`              // what systemd is told of its container ($container)
}

// Stages of the first process, as words on its command line.
const (
	StageEnter = "enter" // it enters its control groups
	StageMount = "mount" // these are the root of its namespace now: it mounts the root and becomes systemd
)

// FirstProcess is the process that becomes the appliance's systemd. Its namespaces but that of the control groups
// exist already: that one can only be made once the process is in the groups that shall be its root, so it starts
// itself again. again are the words of its command line before the stage. It returns only with an error.
func FirstProcess(again []string, stage, file string) error {
	if os.Getpid() != 1 { // it would change the mounts of this machine
		return errors.New("become the appliance's systemd: this process is not the first of its namespace; start the " +
			"appliance by its unit, or by firstlight try")
	}

	var p Plan
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return fmt.Errorf("read plan of the appliance: %w", err)
	}

	// Whoever has started this process is the death of it. That was said for its first thread, and is forgotten when
	// another one of Go's becomes the next program.
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("end with the supervisor: %w", err)
	}
	if stage == StageEnter {
		if err := EnterCgroups(p.Cgroup, p.Parents...); err != nil {
			return err
		}
		if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
			return fmt.Errorf("unshare cgroups: %w", err)
		}
		if err := DropCapabilities(); err != nil {
			return err
		}
		words := append(append([]string{os.Args[0]}, again...), StageMount, file)
		return fmt.Errorf("start again: %w", unix.Exec("/proc/self/exe", words, os.Environ()))
	}

	root, err := p.mount()
	if err != nil {
		return err
	}

	// Its cables come from outside: the supervisor is told that it may connect them, and says when it has.
	if _, err := os.Stdout.Write([]byte{'\n'}); err != nil {
		return fmt.Errorf("ask for cables: %w", err)
	}
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("await cables: %w", err)
	}
	if err := unix.Sethostname([]byte("firstlight")); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if err := Pivot(root); err != nil {
		return fmt.Errorf("change root to %s: %w", root, err)
	}

	// systemd does not touch this machine's devices and time where it knows that it is in a container
	// (https://systemd.io/CONTAINER_INTERFACE).
	environment := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "container=" + p.Kind, "TERM=dumb",
	}
	if err := useConsole(); err != nil {
		return err
	}

	return fmt.Errorf("start systemd: %w", unix.Exec(systemd, []string{systemd}, environment))
}

const systemd = "/usr/lib/systemd/systemd"

// useConsole gives the process the console for its input and output, and nothing else that is open.
func useConsole() error {
	console, err := unix.Open("/dev/console", unix.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return fmt.Errorf("open console: %w", err)
	}
	for fd := range 3 {
		if err := unix.Dup2(console, fd); err != nil {
			return fmt.Errorf("use console: %w", err)
		}
	}

	return unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC)
}

// DropCapabilities gives up, for this thread and all that it will start, what would change this machine as a whole: its
// clock and its kernel's modules.
func DropCapabilities() error {
	for _, c := range []uintptr{unix.CAP_SYS_TIME, unix.CAP_SYS_MODULE} {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("give up capability %d: %w", c, err)
		}
	}
	return nil
}

// mount puts the appliance's root together below p.Mount and returns it.
func (p Plan) mount() (string, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", fmt.Errorf("make mounts private: %w", err)
	}

	lower, upper, root := p.Mount+"/lower", p.Mount+"/upper", p.Mount+"/root"
	if err := MountRoot(p.Root, p.Offset, lower); err != nil {
		return "", err
	}

	overlay := fmt.Sprintf("lowerdir=%s,upperdir=%s/up,workdir=%s/work", lower, upper, upper)
	upperFS := "tmpfs"
	if p.User {
		// What overlayfs notes at files is trusted.* only for root of the machine; memory has no other before Linux 6.6.
		// It is emptied at each start, so nothing of it need reach the disk: without "volatile" the end of the mount would
		// write all that this machine has yet to write there.
		overlay, upperFS = overlay+",userxattr,volatile", ""
		if err := errors.Join(os.RemoveAll(upper), os.Mkdir(upper, 0o755)); err != nil {
			return "", fmt.Errorf("empty what was laid over the root: %w", err)
		}
	}
	for _, m := range []struct{ source, target, fs, data string }{
		{"tmpfs", upper, upperFS, "mode=0755"},
		{"overlay", root, "overlay", overlay},
		{"proc", root + "/proc", "proc", ""},
		{"sysfs", root + "/sys", "sysfs", ""},
		{"cgroup", root + CgroupRoot, "tmpfs", "mode=0755"},
		{"tmpfs", root + "/run", "tmpfs", "mode=0755"},
		{"tmpfs", root + "/dev", "tmpfs", "mode=0755"},
		{"devpts", root + "/dev/pts", "devpts", "newinstance,ptmxmode=0666,mode=0620,gid=5"},
		{"tmpfs", root + "/dev/shm", "tmpfs", "mode=1777"},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return "", err
		}
		if m.fs != "" {
			if err := unix.Mount(m.source, m.target, m.fs, 0, m.data); err != nil {
				return "", fmt.Errorf("mount %s on %s: %w", m.fs, m.target, err)
			}
		}
		if m.target == upper {
			if err := errors.Join(os.Mkdir(upper+"/up", 0o755), os.Mkdir(upper+"/work", 0o755)); err != nil {
				return "", err
			}
		}
	}

	for _, do := range []func(string) error{
		MountCgroups, p.makeDevices, p.protectKernel, p.bindState, p.writeFiles,
	} {
		if err := do(root); err != nil {
			return "", err
		}
	}

	// As firstlight-init leaves it: the root without what is laid over it.
	return root, Bind(lower, root+stick.LowerDir, unix.MS_RDONLY)
}

// kubeletSysctls are parameters of the whole kernel that the kubelet will not start without. The appliance has files
// of its own in their places, with what the kubelet wants there, so that this machine's stay as they are.
var kubeletSysctls = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// protectKernel makes what would change this machine's kernel unwritable: parameters that are not of the network, and
// /sys, without which neither systemd nor udev handle devices.
func (p Plan) protectKernel(root string) error {
	sys := root + "/proc/sys"
	for _, dir := range []string{sys, sys + "/net"} {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s: %w", dir, err)
		}
	}

	own := p.Mount + "/upper/sysctl"
	for name, value := range kubeletSysctls {
		file := filepath.Join(own, name)
		if err := errors.Join(
			os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(value+"\n"), 0o644),
		); err != nil {
			return fmt.Errorf("write parameter %s: %w", name, err)
		}
		if err := unix.Mount(file, filepath.Join(sys, name), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind parameter %s: %w", name, err)
		}
	}

	trigger := root + "/proc/sysrq-trigger"
	if _, err := os.Stat(trigger); err == nil { // a kernel may have none
		if err := Bind(trigger, trigger, unix.MS_RDONLY); err != nil {
			return err
		}
	}
	for _, dir := range []string{sys, root + "/sys"} {
		if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("make %s unwritable: %w", dir, err)
		}
	}

	return nil
}

// bindState binds what outlives the appliance, as `firstlightd storage` does on a stick, and its site. Whoever is root in
// the appliance writes to DATA: links there that lead out of it are not followed.
func (p Plan) bindState(root string) error {
	if err := Bind(p.Data, root+stick.DataDir, 0); err != nil {
		return err
	}

	data, err := os.OpenRoot(p.Data)
	if err != nil {
		return fmt.Errorf("open DATA: %w", err)
	}
	defer data.Close()
	for _, d := range stick.StateDirs() {
		if err := bindStateDir(data, filepath.Join(stick.StateName, d.Name), root+d.Path, d.Mode); err != nil {
			return fmt.Errorf("bind %s: %w", d.Path, err)
		}
	}

	if p.Daemon != "" {
		if err := Bind(p.Daemon, root+daemonPath, unix.MS_RDONLY); err != nil {
			return err
		}
	}

	return Bind(p.Site, root+stick.SiteDir, unix.MS_RDONLY)
}

// bindStateDir binds a folder of DATA, which is made if it is absent.
func bindStateDir(data *os.Root, name, target string, mode os.FileMode) error {
	if err := data.MkdirAll(name, 0o755); err != nil {
		return err
	}
	own, err := data.Open(name)
	if err != nil {
		return err
	}
	defer own.Close()
	if err := unix.Fchmod(int(own.Fd()), uint32(mode)); err != nil { // as chmod(2) has it, also the bit of the group
		return err
	}
	return Bind(fmt.Sprintf("/proc/self/fd/%d", own.Fd()), target, 0)
}

// daemonPath is where the root has the appliance's daemon.
const daemonPath = "/usr/bin/firstlightd"

// writeFiles writes what firstlight-init would: the machine-id, which DATA keeps.
func (p Plan) writeFiles(root string) error {
	data, err := os.OpenRoot(p.Data)
	if err != nil {
		return fmt.Errorf("open DATA: %w", err)
	}
	defer data.Close()
	id, err := data.ReadFile(stick.MachineIDName)
	if errors.Is(err, os.ErrNotExist) {
		fresh := make([]byte, 16)
		if _, err = rand.Read(fresh); err == nil {
			id = []byte(hex.EncodeToString(fresh))
		}
	}
	if err != nil {
		return fmt.Errorf("find machine-id: %w", err)
	}

	line := strings.TrimSpace(string(id)) + "\n"
	if err := os.WriteFile(root+"/etc/machine-id", []byte(line), 0o444); err != nil {
		return fmt.Errorf("write machine-id: %w", err)
	}

	// The image masks others, among them what systemd makes of a container's console.
	storage := root + "/etc/systemd/system/firstlight-storage.service"
	if err := os.Symlink("/dev/null", storage); err != nil {
		return fmt.Errorf("mask what makes DATA on a disk: %w", err)
	}

	return nil
}
