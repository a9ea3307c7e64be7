package bench_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// pair is two network namespaces and a cable: srv0 with 172.22.0.1/16 in the one, cli0
// with 172.22.0.2/16 in the other.
type pair struct {
	server, client string
}

func newPair(ctx context.Context, tag string) (pair, error) {
	p := pair{server: fmt.Sprintf("bench-%s-s%d", tag, os.Getpid()), client: fmt.Sprintf("bench-%s-c%d", tag, os.Getpid())}
	script := fmt.Sprintf(`set -e
ip netns add %[1]s; ip netns add %[2]s
ip -n %[1]s link add srv0 type veth peer name cli0 netns %[2]s
ip -n %[1]s addr add 172.22.0.1/16 dev srv0; ip -n %[2]s addr add 172.22.0.2/16 dev cli0
for d in lo srv0; do ip -n %[1]s link set $d up; done; for d in lo cli0; do ip -n %[2]s link set $d up; done`, p.server, p.client)
	if out, err := exec.CommandContext(ctx, "sh", "-c", script).CombinedOutput(); err != nil {
		p.remove()
		return pair{}, fmt.Errorf("make namespaces (needs root): %w: %s", err, out)
	}
	return p, nil
}

func (p pair) remove() {
	for _, ns := range []string{p.server, p.client} {
		_ = exec.Command("ip", "netns", "del", ns).Run() // gone already if making it failed
	}
}

// commandIn is a command inside a namespace.
func commandIn(ctx context.Context, ns string, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", ns, name}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// startServer starts a server in a namespace; the returned function ends it.
func startServer(ctx context.Context, ns string, env []string, name string, args ...string) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := commandIn(ctx, ns, name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &out, append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	select {
	case <-ended:
		cancel()
		return nil, fmt.Errorf("start %s %s: it ended at once: %s", name, strings.Join(args, " "), out.Bytes())
	case <-time.After(2500 * time.Millisecond): // time to come up, our own probe included
	}
	return func() { cancel(); <-ended }, nil
}
