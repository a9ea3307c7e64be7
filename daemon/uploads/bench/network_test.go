package bench_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/daemon/uploads/blobs/s3test"
)

// within tells the program that it is in a network of its own.
const within = "FIRSTLIGHT_BENCH_WITHIN"

// congestions are how TCP on the appliance decides how fast to send, the default of Debian's kernel, and what is
// nearest to it: a kernel may not allow the first to a network that is not its own first one. Neither paces
// connections with timers, as BBR does; an upload that is verified has two connections, one that is not has
// one, and what would be compared is their timers.
var congestions = []string{"cubic", "reno"}

// reexecInNamespace runs the benchmarks in a network of their own, whose TCP is as the appliance's. What must
// be compiled is compiled before, since nothing can be fetched from there.
func reexecInNamespace(ctx context.Context) error {
	if _, err := s3test.Program(); err != nil {
		return err
	}
	if err := compile(ctx, os.DevNull); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = append(os.Environ(), within+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: gid, Size: 1}}
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("measure in a network of its own: %w", err)
	}
	return nil
}

// setUpNetwork makes the network of its own usable.
func setUpNetwork(ctx context.Context) error {
	if out, err := exec.CommandContext(ctx, "ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("switch loopback on: %w: %s", err, out)
	}
	var err error
	for _, name := range congestions {
		if err = os.WriteFile("/proc/sys/net/ipv4/tcp_congestion_control", []byte(name), 0); err == nil {
			return nil
		}
	}
	return fmt.Errorf("choose TCP's congestion control: %w", err)
}

// compile compiles firstlightd.
func compile(ctx context.Context, out string) error {
	top, err := bench.FindTop()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, "./cmd/firstlightd")
	cmd.Dir = top
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile firstlightd: %w: %s", err, text)
	}
	return nil
}
