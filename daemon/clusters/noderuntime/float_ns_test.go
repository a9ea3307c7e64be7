package noderuntime

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/netns/netnstest"
)

// floatNode names the file by which this program is a node of a control plane: as long as it exists, its API server
// answers.
const floatNode = "FIRSTLIGHT_TEST_FLOAT"

var floatAt = netip.AddrPortFrom(floating, 6443)

func TestMain(m *testing.M) {
	if file := os.Getenv(floatNode); file != "" {
		fmt.Fprintln(os.Stderr, runFloatNode(file))
		return
	}
	os.Exit(m.Run())
}

// runFloatNode is a node until it is told to end.
func runFloatNode(alive string) error {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := os.Stat(alive); err != nil {
			http.Error(w, "etcd failed", http.StatusInternalServerError)
		}
	}))
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", floatAt.Port()))
	if err != nil {
		return err
	}
	server.Listener = listener
	server.StartTLS()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	f := &Float{Endpoint: floatAt, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	return f.Run(ctx)
}

// floater is a node of a control plane in a network namespace.
type floater struct {
	t     *testing.T
	pid   int    // whose namespace it is
	alive string // file, as long as its API server answers
	cmd   *exec.Cmd
}

func newFloater(t *testing.T, bridge *netns.Bridge, addr netip.Addr) *floater {
	n := &floater{t: t, pid: netnstest.New(t), alive: filepath.Join(t.TempDir(), "alive")}
	require.NoError(t, bridge.Connect(t.Context(), n.pid, fmt.Sprintf("port%d", addr.As4()[3]), "eth0"))
	require.NoError(t, netns.IP(t.Context(), n.pid, "link set lo up", fmt.Sprintf("address add %s/24 dev eth0", addr)))
	n.serve(true)
	t.Cleanup(func() { n.end(syscall.SIGKILL) })
	return n
}

func (n *floater) serve(alive bool) {
	if alive {
		require.NoError(n.t, os.WriteFile(n.alive, nil, 0o600))
	} else {
		require.NoError(n.t, os.Remove(n.alive))
	}
}

func (n *floater) start() {
	self, err := os.Executable()
	require.NoError(n.t, err)
	n.cmd = exec.Command("nsenter", "--net="+netns.PathOf(n.pid), "--", self)
	n.cmd.Env = append(os.Environ(), floatNode+"="+n.alive)
	n.cmd.Stderr = n.t.Output()
	require.NoError(n.t, n.cmd.Start())
}

func (n *floater) end(signal syscall.Signal) {
	if n.cmd != nil {
		_ = n.cmd.Process.Signal(signal)
		_ = n.cmd.Wait()
		n.cmd = nil
	}
}

// has reports whether the address is on the node's interface.
func (n *floater) has() bool {
	out, err := exec.Command("nsenter", "--net="+netns.PathOf(n.pid), "--", "ip", "-o", "address", "show").Output()
	require.NoError(n.t, err)
	return strings.Contains(string(out), " "+floating.String()+"/32 ")
}

// TestAnAddressFloats: the address of an endpoint is on one of two nodes whose servers answer, through everything that
// may happen to a node, and on none while it is somebody else's.
func TestAnAddressFloats(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), "ns") || os.Geteuid() != 0 {
		t.Skip("makes network namespaces; set FIRSTLIGHT_TEST=ns, as root")
	}
	bridge, err := netns.NewBridge(context.WithoutCancel(t.Context()))
	require.NoError(t, err)
	t.Cleanup(bridge.Close)
	a, b := newFloater(t, bridge, lower), newFloater(t, bridge, higher)
	becomes := func(what string, n, not *floater) {
		t.Helper()
		began := time.Now()
		require.Eventually(t, func() bool { return n.has() && (not == nil || !not.has()) }, 2*time.Minute, 50*time.Millisecond, what)
		t.Logf("%s: after %.1f s", what, time.Since(began).Seconds())
	}

	require.NoError(t, bridge.IP(t.Context(), fmt.Sprintf("address add %s/24 dev %s", floating, netns.BridgeName)))
	a.start()
	time.Sleep(6 * time.Second)
	assert.False(t, a.has(), "it took an address that somebody has")
	require.NoError(t, bridge.IP(t.Context(), fmt.Sprintf("address del %s/24 dev %s", floating, netns.BridgeName)))
	becomes("the first node has a free address", a, b)

	b.start()
	time.Sleep(5 * time.Second)
	assert.True(t, a.has(), "a node that comes later took it away")
	assert.False(t, b.has(), "two have it")

	a.end(syscall.SIGKILL)
	becomes("the other has it when the program is killed, with the address still on the dead node", b, nil)
	a.start()
	becomes("the dead node gives it up when it comes back", b, a)

	b.serve(false)
	becomes("another has it when the server does not answer", a, b)
	b.serve(true)
	a.end(syscall.SIGTERM)
	becomes("another has it when a node is shut down", b, a)

	b.serve(false)
	time.Sleep(6 * time.Second)
	assert.True(t, b.has(), "no other node takes it, and its own is cut off")
	a.start()
	becomes("the first that answers has it", a, b)
}
