package chain

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"firstlight.dev/firstlight/daemon/addons/chain/counters"
	"firstlight.dev/firstlight/image/lab/netns"
)

// partVariable has this program be a part of the chain in place of the tests.
const partVariable = "FIRSTLIGHT_CHAIN_PART"

const partInterval = 200 * time.Millisecond

func TestMain(m *testing.M) {
	part := os.Getenv(partVariable)
	if part == "" {
		os.Exit(m.Run())
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := runPart(ctx, part); err != nil {
		fmt.Fprintln(os.Stderr, part, err)
		os.Exit(1)
	}
}

func runPart(ctx context.Context, part string) error {
	const listen, at = "127.0.0.1:8080", "198.19.0.10:9000"
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	switch part {
	case "generator":
		return (&Generator{To: at, Rate: 500, Size: 64, Listen: listen, Interval: partInterval, Log: log}).Run(ctx)
	case "sink":
		return (&Sink{At: at, Listen: listen, Interval: partInterval, Log: log}).Run(ctx)
	}

	table, err := NewTable("chain-in", "chain-out")
	if err != nil {
		return err
	}
	f := Filter{
		Namespace: "service-chain", ConfigMap: "chain", Table: table, Listen: listen, Interval: partInterval, Log: log,
		Open: func() error { return OpenForwarding("chain-in", "chain-out") }, Events: &record.FakeRecorder{},
		Client: fake.NewClientset(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "service-chain", Name: "chain"},
		}),
	}
	go func() { // the API server: each line is the text of new rules
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			o := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: f.ConfigMap},
				Data:       map[string]string{RulesKey: in.Text()},
			}
			if _, err := f.Client.CoreV1().ConfigMaps(f.Namespace).Update(ctx, o, metav1.UpdateOptions{}); err != nil {
				log.Error("update", "error", err)
			}
		}
	}()
	return f.Run(ctx)
}

// wire is the chain: three pods in network namespaces of their own, as the networks chain-in and chain-out connect them.
type wire struct {
	t     *testing.T
	pids  map[string]int // of what holds each namespace
	rules io.Writer      // of the firewall that runs
}

func newWire(t *testing.T) *wire {
	w := &wire{t: t, pids: map[string]int{}}
	for _, name := range []string{"generator", "firewall", "sink"} {
		cmd := exec.Command("sleep", "infinity")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		w.pids[name] = cmd.Process.Pid
	}

	w.ip("firewall", "link set lo up",
		fmt.Sprintf("link add chain-in type veth peer name chain-in netns %d", w.pids["generator"]),
		fmt.Sprintf("link add chain-out type veth peer name chain-out netns %d", w.pids["sink"]),
		"addr add 198.18.0.1/24 dev chain-in", "link set chain-in up",
		"addr add 198.19.0.1/24 dev chain-out", "link set chain-out up")
	w.ip("generator", "link set lo up", "addr add 198.18.0.10/24 dev chain-in", "link set chain-in up",
		"route add 198.19.0.0/24 via 198.18.0.1")
	w.ip("sink", "link set lo up", "addr add 198.19.0.10/24 dev chain-out", "link set chain-out up",
		"route add 198.18.0.0/24 via 198.19.0.1")
	// As plugin tuning does.
	w.within("firewall", func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("0"), 0) })
	return w
}

func (w *wire) ip(pod string, commands ...string) {
	w.t.Helper()
	require.NoError(w.t, netns.IP(w.t.Context(), w.pids[pod], commands...))
}

func (w *wire) within(pod string, do func() error) {
	w.t.Helper()
	require.NoError(w.t, netns.Do(netns.PathOf(w.pids[pod]), do))
}

// start runs a part in its pod with the capabilities that it has there, and returns how to kill it.
func (w *wire) start(part string) (kill func()) {
	w.t.Helper()
	capabilities := "-all"
	if part == "firewall" {
		capabilities += ",+net_admin"
	}
	cmd := exec.Command("setpriv", "--bounding-set="+capabilities, "--inh-caps=-all", "--no-new-privs", os.Args[0])
	cmd.Env = append(os.Environ(), partVariable+"="+part)
	cmd.Stderr = w.t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	require.NoError(w.t, err)
	w.within(part, cmd.Start)
	if part == "firewall" {
		w.rules = in
	}
	ended := false
	kill = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	w.t.Cleanup(kill)
	return kill
}

// read reads what a part says of itself.
func (w *wire) read(part, path string) (code int, body []byte, err error) {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (conn net.Conn, err error) {
			_ = netns.Do(netns.PathOf(w.pids[part]), func() error {
				conn, err = net.Dial(network, address)
				return err
			})
			return conn, err
		},
	}}
	r, err := client.Get("http://127.0.0.1:8080" + path)
	if err != nil {
		return 0, nil, err
	}
	defer r.Body.Close()
	body, err = io.ReadAll(r.Body)
	return r.StatusCode, body, err
}

// ask reads JSON of a part that may just start.
func (w *wire) ask(part string, into any) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		code, body, err := w.read(part, "/")
		return err == nil && code == http.StatusOK && json.Unmarshal(body, into) == nil
	}, hung, 20*time.Millisecond, part)
}

// set gives the firewall rules, and waits until it says so of them.
func (w *wire) set(rules string, done func(Filtering) bool) (f Filtering) {
	w.t.Helper()
	_, err := fmt.Fprintln(w.rules, rules)
	require.NoError(w.t, err)
	require.Eventually(w.t, func() bool {
		f = Filtering{}
		w.ask("firewall", &f)
		return done(f)
	}, hung, 20*time.Millisecond, rules)
	return f
}

// window counts packets until a thousand more are sent, which takes some seconds.
func (w *wire) window(what string) (sent, received uint64, took time.Duration) {
	w.t.Helper()
	var before, after Receiving
	var first, last Sending
	began := time.Now()
	w.ask("sink", &before)
	w.ask("generator", &first)
	require.Eventually(w.t, func() bool {
		w.ask("generator", &last)
		return last.Sent >= first.Sent+1000
	}, hung, 100*time.Millisecond, "the generator is not what is tried here")
	w.ask("sink", &after)
	took = time.Since(began)
	sent, received = last.Sent-first.Sent, after.Received-before.Received
	w.t.Logf("%-36s in %.1f s: %4d packets sent, %4d received", what, took.Seconds(), sent, received)
	return sent, received, took
}

// checkBytes: each part counts bytes as it says, the ends those of the payload and the firewall with 28 of headers.
func (w *wire) checkBytes() {
	w.t.Helper()
	var sent Sending
	w.ask("generator", &sent)
	assert.Equal(w.t, sent.Sent*64, sent.Bytes)
	var f Filtering
	w.ask("firewall", &f)
	assert.Positive(w.t, f.Forwarded)
	assert.Equal(w.t, f.Forwarded*(64+28), f.ForwardedBytes)

	for part, names := range map[string][]string{
		"generator": {counters.SentPackets, counters.SentBytes, counters.SendErrors},
		"firewall": {
			counters.ForwardedPackets, counters.ForwardedBytes, counters.DroppedPackets, counters.RulesChanged, counters.RulesRefused,
		},
		"sink": {counters.ReceivedPackets, counters.ReceivedBytes},
	} {
		_, text, err := w.read(part, "/metrics")
		require.NoError(w.t, err)
		for _, name := range names {
			assert.Regexp(w.t, "(?m)^"+name+" [0-9]", string(text), part)
		}
	}
}

func holds(rules int) func(Filtering) bool {
	return func(f Filtering) bool { return f.Problem == "" && len(f.Rules) == rules }
}

// TestPacketsThroughAChain: packets of a generator cross a firewall to a sink, each in a network namespace of its own and
// with the rights of its pod. Nothing crosses a firewall without rules. A rule lowers what arrives, a wrong one changes
// nothing, a firewall that is killed leaves its rules in force, and without rules everything arrives again.
func TestPacketsThroughAChain(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), "ns") || os.Geteuid() != 0 {
		t.Skip("makes network namespaces; set FIRSTLIGHT_TEST=ns, as root")
	}
	w := newWire(t)
	w.start("sink")
	w.start("generator")
	all := func(what string) {
		t.Helper()
		sent, received, _ := w.window(what)
		assert.Greater(t, received, sent*9/10)
	}
	none := func(what string) {
		t.Helper()
		_, received, _ := w.window(what)
		assert.Zero(t, received)
	}
	limited := func(what string) {
		t.Helper()
		const perSecond, burst = 100, 10
		sent, received, took := w.window(what)
		assert.Positive(t, received)
		assert.Less(t, received, sent)
		assert.LessOrEqual(t, float64(received), perSecond*took.Seconds()+burst+1)
	}

	none("no firewall")
	kill := w.start("firewall")
	require.Eventually(t, func() bool {
		code, _, _ := w.read("firewall", "/ready")
		return code == http.StatusServiceUnavailable
	}, hung, 20*time.Millisecond)
	none("a firewall without rules")
	w.set("[]", holds(0))
	all("no rule")
	w.set("["+strings.TrimPrefix(example, "- ")+"]", holds(1))
	limited("100 packets a second")
	f := w.set("[{action: allow}]", func(f Filtering) bool { return f.Problem != "" })
	assert.Equal(t, `rule 1: action "allow" is not known; write accept or drop`, f.Problem)
	require.Len(t, f.Rules, 1)
	assert.Positive(t, f.Rules[0].Packets)
	limited("a wrong rule")

	w.set("[{from: 198.18.0.10, to: 198.19.0.0/24, protocol: udp, port: 8000-9000, action: drop}]", holds(1))
	none("drop")
	kill()
	none("drop, and the firewall was killed")
	kill = w.start("firewall")
	w.set("[{}]", func(f Filtering) bool { return strings.Contains(f.Problem, "action is missing") })
	none("drop, and a wrong rule after that")
	w.set("[{protocol: udp, port: 9000, action: accept}, {action: drop}]", holds(2))
	all("accept before drop")
	_, metrics, err := w.read("sink", "/metrics")
	require.NoError(t, err)
	assert.Regexp(t, `(?m)^chain_received_packets_total [1-9]`, string(metrics))
	w.checkBytes()
	w.set("[]", holds(0))
	all("no rule again")

	// It forwards between its two interfaces alone.
	w.within("firewall", func() error {
		for name, want := range map[string]string{"chain-in": "1", "chain-out": "1", "lo": "0", "default": "0"} {
			text, err := os.ReadFile("/proc/sys/net/ipv4/conf/" + name + "/forwarding")
			if err != nil {
				return err
			}
			assert.Equal(t, want, strings.TrimSpace(string(text)), name)
		}
		out, err := exec.Command("nft", "list", "table", "ip", TableName).CombinedOutput()
		t.Log("\n" + string(out))
		return err
	})
	kill()
}
