package netns

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"

	"firstlight.dev/firstlight/image/lab/process"
)

// BridgeName is the interface of a Bridge in its namespace, which all ports are on.
const BridgeName = "rack"

// Bridge is a switch of the kernel's in a network namespace of its own: namespaces are connected to it and share an
// Ethernet without a way out.
type Bridge struct {
	holder *process.Child // whose namespace it is
}

// NewBridge makes a bridge. Close it.
func NewBridge(ctx context.Context) (*Bridge, error) {
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	holder, err := process.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("make bridge: %w", err)
	}

	b := &Bridge{holder: holder}
	if err := b.IP(
		ctx, "link set lo up", "link add "+BridgeName+" type bridge", "link set "+BridgeName+" up",
	); err != nil {
		b.Close()
		return nil, fmt.Errorf("make bridge: %w", err)
	}

	return b, nil
}

// PID is the process whose network namespace it is.
func (b *Bridge) PID() int { return b.holder.ID.PID }

// Path is the file that stands for its network namespace.
func (b *Bridge) Path() string { return PathOf(b.PID()) }

// Connect gives the network of a process a NIC with a cable to a port of the bridge, both up. A port of that name
// that is there already is unplugged: the kernel removes those of a namespace that has ended in its own time.
func (b *Bridge) Connect(ctx context.Context, pid int, port, nic string) error {
	_ = b.IP(ctx, "link del "+port) // there may be none
	err := IP(ctx, pid, fmt.Sprintf("link add %s type veth peer name %s netns %d", nic, port, b.PID()))
	if err == nil {
		err = errors.Join(b.IP(ctx, "link set "+port+" master "+BridgeName+" up"), IP(ctx, pid, "link set "+nic+" up"))
	}

	if err != nil {
		return fmt.Errorf("connect %s to port %s: %w", nic, port, err)
	}

	return nil
}

// IP runs IP in the bridge's namespace.
func (b *Bridge) IP(ctx context.Context, commands ...string) error {
	return IP(ctx, b.PID(), commands...)
}

// Close ends the namespace, and with it every cable.
func (b *Bridge) Close() { b.holder.Kill() }

// IP runs this machine's ip in the network of a process, once for each of the commands.
func IP(ctx context.Context, pid int, commands ...string) error {
	for _, c := range commands {
		words := append([]string{"--net=" + PathOf(pid), "--", "ip"}, strings.Fields(c)...)
		if out, err := exec.CommandContext(ctx, "nsenter", words...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s in the network of process %d: %w: %s", c, pid, err, out)
		}
	}
	return nil
}
