package dhcp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/lease"
)

// A server in a namespace is a process of its own, this test binary with helperEnv set:
// goroutines cannot be kept in a namespace, and a process can be killed.
const helperEnv = "FIRSTLIGHT_DHCP_CONFIG"

func TestMain(m *testing.M) {
	if path := os.Getenv(helperEnv); path != "" {
		exitOn(helper(path))
	}
	switch os.Getenv(clientEnv) {
	case "send":
		exitOn(sendLines(os.Stdin, os.Stdout))
	case "probe":
		exitOn(printProbe(os.Stdout))
	case "client6":
		exitOn(client6(os.Stdout))
	case "watch":
		exitOn(watchAcks(os.Stdout))
	}
	os.Exit(m.Run())
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func helper(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var c Config
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	out := &printer{w: os.Stdout}
	s, err := New(c, Deps{Booter: bootAll{}, Events: out, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// bootAll lets every machine boot into inspection.
type bootAll struct{}

func (bootAll) Boot(context.Context, pxe.Machine) pxe.Boot {
	return pxe.Boot{Action: pxe.ActionInspect}
}

// printer writes events as lines.
type printer struct {
	mu sync.Mutex
	w  io.Writer
}

func (p *printer) DHCP(e Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, "%s %s mac=%v addr=%v file=%s %s\n", e.Kind, e.Reason, e.Machine.MAC, e.Addr, e.File, e.Text)
}

func (p *printer) DHCPStatus(s Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, "status %s: %s\n", s.Phase, s.Text)
}

// process is a running server and what it said.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	mu  sync.Mutex
	out strings.Builder
}

// start runs a server in a namespace and does not wait for it to serve.
func start(t *testing.T, ns string, c Config) *process {
	t.Helper()
	data, err := json.Marshal(c)
	require.NoError(t, err)
	file := t.TempDir() + "/config.json"
	require.NoError(t, os.WriteFile(file, data, 0o600))
	p := &process{t: t}
	self, err := os.Executable()
	require.NoError(t, err)
	p.cmd = exec.Command("ip", "netns", "exec", ns, self)
	p.cmd.Env = append(os.Environ(), helperEnv+"="+file)
	p.cmd.Stderr = (*lockedWriter)(p)
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start()) // ip execs the server: its pid is the server's
	go func() {
		for in := bufio.NewScanner(stdout); in.Scan(); {
			_, _ = (*lockedWriter)(p).Write(append(in.Bytes(), '\n'))
		}
	}()
	t.Cleanup(func() {
		p.stop()
		for _, fault := range []string{"DATA RACE", "handler panicked", "fatal error:"} {
			assert.NotContains(t, p.output(), fault)
		}
	})
	return p
}

type lockedWriter process

func (w *lockedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// waitFor waits for a text in the output, a generous while.
func (p *process) waitFor(text string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return strings.Contains(p.output(), text) }, 90*time.Second, 50*time.Millisecond,
		"waited for %q, got:\n%s", text, lastLines{p})
}

type lastLines struct{ p *process }

func (l lastLines) String() string {
	out := l.p.output()
	return out[max(0, len(out)-4000):]
}

func (p *process) count(text string) int { return strings.Count(p.output(), text) }

// stop ends the server in an orderly way; kill does not.
func (p *process) stop() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		_ = p.cmd.Wait()
	}
}

func (p *process) kill() {
	require.NoError(p.t, p.cmd.Process.Kill())
	_ = p.cmd.Wait()
}

// leasesIn reads the leases of a server that has ended.
func leasesIn(t *testing.T, dir string) []lease.ListedLease {
	t.Helper()
	j, err := lease.OpenJournal(dir, lease.Clock{})
	require.NoError(t, err)
	list := j.List()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, j.Run(ctx))
	return list
}

func mustMAC(s string) net.HardwareAddr {
	m, err := net.ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return m
}
