// Package sandbox runs the appliance's (or a node's) own root tree in Linux namespaces. It is up in a fraction of a
// second, where a virtual machine would need a minute. The programs in it are the real ones with their real units; what
// is not real is the kernel's boot and systemd.
//
//	appliance, err := sandbox.Start(ctx, sandbox.Config{Name: "one", Root: root, Dir: t.TempDir()})
//	defer appliance.Close()
//	out, err := appliance.Run(ctx, "systemctl", "start", "containerd")
//	text, err := os.ReadFile(appliance.Path("/etc/kubernetes/admin.conf"))
//
// A sandbox has its own mounts, network, processes, host name, IPC and cgroups, and needs root. Its root is
// read-only below an overlay in memory; the directories of Config.Keep lie in Config.Dir and outlive
// it: closing a sandbox and starting another in the same Dir is a power cut, as far as that can be had
// without a kernel that dies (what was not synced is still there). Its first process is the small
// service manager of package systemctl beside this one, which is also bound over the tree's systemctl.
//
// Its network holds a loopback and nothing else: Connect joins sandboxes by veth pairs, and Run("ip", …)
// makes what a test needs. There is no default route, like on an appliance without cables.
//
// Not in a sandbox: a wall clock of its own (Linux has namespaces for the monotonic and the boot clock
// only), udev, the journal, dbus, kernel modules and sysctls outside net.*. The kernel is this
// machine's; with cgroup version 1 the kubelet makes pods' cgroups itself.
package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"firstlight.dev/firstlight/image/lab/container"
)

// Config is what a sandbox is made of.
type Config struct {
	Name string // host name; unique on this machine among sandboxes that live at once
	// Root is an unpacked tree, a squashfs file, or a disk image of the product (its ROOT partition).
	Root string
	// DiskImage is a disk image of this machine whose root is used instead: the nodes' system.
	DiskImage string
	// Disk lets the whole root outlive the sandbox, as on a machine with a disk. What holds an overlay itself,
	// such as /var/lib/containerd, must be in Keep all the same.
	Disk bool
	Dir  string            // working directory: DATA, mount points, logs; absolute, made if absent
	Keep []string          // directories of the root that outlive the sandbox; nil: those that the appliance keeps
	Add  map[string]string // path in the root: host's file or directory shown there, read-only
	// Manager is the program image/lab/testbed/sandbox/systemctl, see Build.
	Manager string
	Log     io.Writer // what the first process says; may be nil
}

// DataDirs are the directories that the appliance keeps on its DATA partition.
func DataDirs() []string {
	return []string{"/var/lib/firstlight", "/var/lib/containerd", "/var/lib/kubelet", "/var/lib/etcd", "/etc/kubernetes",
		"/var/lib/ironic", "/var/log/pods", "/var/log/units", "/opt/kud"}
}

// Sandbox is a root tree that lives.
type Sandbox struct {
	config Config
	cmd    *exec.Cmd
	alive  io.Closer // closing it ends the first process
	once   sync.Once
	ended  chan struct{}
}

// Start makes a sandbox and returns when its service manager answers. Leftovers of a sandbox of the same name
// whose owner crashed are removed first.
func Start(ctx context.Context, c Config) (*Sandbox, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("start sandbox: needs root")
	}

	if c.Keep == nil {
		c.Keep = DataDirs()
	}

	cgroup := cgroupName(c.Name)
	if err := container.RemoveCgroups(cgroup); err != nil {
		return nil, err
	}

	lower, offset, err := container.FindRoot(c.Root)
	if err != nil {
		return nil, err
	}

	add := map[string]string{"/usr/bin/systemctl": c.Manager}
	for path, source := range c.Add {
		add[path] = source
	}

	plan, err := json.Marshal(map[string]any{
		"Name":      cgroup,
		"Lower":     lower,
		"Offset":    offset,
		"DiskImage": c.DiskImage,
		"Disk":      c.Disk,
		"Work":      filepath.Join(c.Dir, "mount"),
		"Data":      filepath.Join(c.Dir, "data"),
		"Keep":      c.Keep,
		"Add":       add,
	})
	if err != nil {
		return nil, fmt.Errorf("encode plan of sandbox: %w", err)
	}

	file := filepath.Join(c.Dir, "sandbox.json")
	if err := errors.Join(
		os.MkdirAll(filepath.Join(c.Dir, "mount"), 0o755), os.WriteFile(file, plan, 0o644),
	); err != nil {
		return nil, fmt.Errorf("write plan of sandbox: %w", err)
	}

	b := &Sandbox{config: c, ended: make(chan struct{})}
	b.cmd = exec.Command(c.Manager, "sandbox", file)
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS |
		syscall.CLONE_NEWIPC | syscall.CLONE_NEWNET}
	if b.alive, err = b.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start sandbox: %w", err)
	}

	out, err := b.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start sandbox: %w", err)
	}

	b.cmd.Stderr = c.Log
	if err := b.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start sandbox: %w", err)
	}

	ready := make(chan struct{})
	go b.followOutput(out, ready)
	select {
	case <-ready:
	case <-b.ended:
		return nil, errors.Join(
			fmt.Errorf("start sandbox %s: its first process ended: %s", c.Name, b.cmd.ProcessState), container.RemoveCgroups(cgroup),
		)
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), b.Close())
	}

	if _, err := b.Run(ctx, "ip", "link", "set", "lo", "up"); err != nil {
		return nil, errors.Join(err, b.Close())
	}

	return b, nil
}

// followOutput copies what the first process says and notes when it is ready and when it is gone.
func (b *Sandbox) followOutput(out io.Reader, ready chan struct{}) {
	for s := bufio.NewScanner(out); s.Scan(); {
		if s.Text() == "sandbox: ready" {
			close(ready)
		} else if b.config.Log != nil {
			fmt.Fprintln(b.config.Log, s.Text())
		}
	}
	b.cmd.Wait() // its state is read where it matters
	close(b.ended)
}

// AwaitEnd waits until the sandbox is no more, because it was closed, switched itself off or restarted. It needs another
// Start then.
func (b *Sandbox) AwaitEnd(ctx context.Context) error {
	select {
	case <-b.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// PID is the sandbox's first process as this machine numbers it.
func (b *Sandbox) PID() int { return b.cmd.Process.Pid }

// Name is the sandbox's name.
func (b *Sandbox) Name() string { return b.config.Name }

// Path is where a path of the sandbox is on this machine, while the sandbox lives. Links inside are not
// followed as the sandbox would.
func (b *Sandbox) Path(inside string) string {
	return filepath.Join("/proc", strconv.Itoa(b.PID()), "root", inside)
}

// WriteFile writes a file of the sandbox, and makes the directories that it is in.
func (b *Sandbox) WriteFile(inside string, data []byte, mode os.FileMode) error {
	path := b.Path(inside)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s in sandbox %s: %w", inside, b.Name(), err)
	}
	if err := os.WriteFile(path, data, mode); err != nil {
		return fmt.Errorf("write %s in sandbox %s: %w", inside, b.Name(), err)
	}

	return nil
}

// DataPath is where a kept directory of the sandbox, or a path below it, is on this machine, also when the sandbox
// is gone.
func (b *Sandbox) DataPath(inside string) string { return filepath.Join(b.config.Dir, "data", inside) }

// Command is a command that will run inside, with the environment of the appliance's root shell.
func (b *Sandbox) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	enter := []string{"--target", strconv.Itoa(b.PID()), "--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup", "--root", "--wd=/", "--", name}
	cmd := exec.CommandContext(ctx, "nsenter", append(enter, args...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
	return cmd
}

// Run runs a command inside and returns what it printed on standard output. Its error holds the
// command and what it said on standard error.
func (b *Sandbox) Run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := b.Command(ctx, name, args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf(
			"run %s %s in sandbox %s: %w: %s%s", name, strings.Join(args, " "), b.config.Name, err, out.String(),
			said.String(),
		)
	}

	return out.String(), nil
}

// Apply has kubectl apply objects in YAML or JSON: the appliance's, unless flags name another cluster.
func (b *Sandbox) Apply(ctx context.Context, objects string, flags ...string) error {
	cmd := b.Command(ctx, "kubectl", append(flags, "apply", "-f", "-")...)
	cmd.Stdin = strings.NewReader(objects)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apply objects in sandbox %s: %w: %s", b.config.Name, err, said)
	}

	return nil
}

// UnitLog is what a unit printed, in this sandbox and in those before it in the same Dir.
func (b *Sandbox) UnitLog(unit string) string {
	text, err := os.ReadFile(b.DataPath("/var/log/units/" + unit + ".log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Close kills the first process, with it everything in the sandbox, and removes the sandbox's cgroups. What
// was kept stays in Dir.
func (b *Sandbox) Close() error {
	var err error
	b.once.Do(func() {
		b.alive.Close()
		if killing := b.cmd.Process.Kill(); killing != nil && !errors.Is(killing, os.ErrProcessDone) {
			err = fmt.Errorf("end sandbox %s: %w", b.config.Name, killing)
		}

		<-b.ended
		err = errors.Join(err, container.RemoveCgroups(cgroupName(b.config.Name)))
	})
	return err
}
