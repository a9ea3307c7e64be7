package chain

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/knftables"
)

// bench is a firewall with an API server and a kernel that do not exist.
type bench struct {
	*Filter
	t      *testing.T
	nft    *knftables.Fake
	events *record.FakeRecorder
	log    *lines

	mu     sync.Mutex
	opened int
	closed error // what opening says
}

// lines is a log that is read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newBench(t *testing.T) *bench {
	b := &bench{
		t: t, nft: knftables.NewFake(knftables.IPv4Family, TableName), events: record.NewFakeRecorder(99), log: &lines{},
	}
	b.Filter = &Filter{
		Namespace: "service-chain",
		ConfigMap: "chain",
		Table:     &Table{nft: b.nft, in: "chain-in", out: "chain-out"},
		Open:      b.open,
		Client:    fake.NewClientset(),
		Events:    b.events,
		Listen:    "127.0.0.1:0",
		Interval:  20 * time.Millisecond,
		Log:       slog.New(slog.NewTextHandler(io.MultiWriter(b.log, t.Output()), nil)),
	}
	return b
}

func (b *bench) open() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened++
	return b.closed
}

// run starts the firewall. What it returns ends it, and waits for that.
func (b *bench) run() (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	return func() {
		cancel()
		require.NoError(b.t, <-ended)
	}
}

// write makes the ConfigMap that of some data; nil deletes it.
func (b *bench) write(data map[string]string) {
	b.t.Helper()
	all := b.Client.CoreV1().ConfigMaps(b.Namespace)
	if data == nil {
		require.NoError(b.t, all.Delete(b.t.Context(), b.ConfigMap, metav1.DeleteOptions{}))
		return
	}
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.ConfigMap}, Data: data}
	if _, err := all.Update(b.t.Context(), o, metav1.UpdateOptions{}); err != nil {
		_, err = all.Create(b.t.Context(), o, metav1.CreateOptions{})
		require.NoError(b.t, err)
	}
}

// hung ends a test that waits for what never comes.
const hung = 2 * time.Minute

// await waits for an Event that begins so.
func (b *bench) await(text string) {
	b.t.Helper()
	for {
		select {
		case e := <-b.events.Events:
			b.t.Log(e)
			if strings.HasPrefix(e, text) {
				return
			}
		case <-time.After(hung):
			require.Fail(b.t, "no Event", text)
		}
	}
}

// awaitLog waits until the log has a text so often.
func (b *bench) awaitLog(text string, times int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		return strings.Count(b.log.String(), text) == times
	}, hung, 10*time.Millisecond, text)
}

// TestTheFirewallFollowsItsConfigMap: it is shut until there are rules, follows each change, and keeps the rules that it
// has when those that come are wrong, or when the ConfigMap goes.
func TestTheFirewallFollowsItsConfigMap(t *testing.T) {
	b := newBench(t)
	stop := b.run()
	b.awaitLog("is not there", 1)
	assert.Contains(t, b.log.String(), "ConfigMap service-chain/chain is not there; create it with the key rules")
	assert.Contains(t, b.log.String(), "nothing is forwarded until that is corrected")
	require.Error(t, b.ready())
	assert.Nil(t, b.nft.Table)
	assert.Zero(t, b.opened)

	b.write(map[string]string{"rule": "[]"})
	b.await("Warning RulesRefused the ConfigMap has no key rules; write rules: '[]' to let everything pass; nothing is forwarded")
	require.Error(t, b.ready())

	b.write(map[string]string{RulesKey: "[]"})
	b.await("Normal RulesApplied 0 rules are applied")
	require.NoError(t, b.ready())
	assert.Contains(t, b.nft.Dump(), "policy drop")
	assert.Positive(t, b.opened)

	b.write(map[string]string{RulesKey: example})
	b.await("Normal RulesApplied 1 rules are applied")
	const limited = "udp dport 9000 limit rate over 100/second burst 10 packets counter name rule-1 drop"
	assert.Contains(t, b.nft.Dump(), limited)

	b.write(map[string]string{RulesKey: "- {protocol: udq, action: drop}"})
	b.await(`Warning RulesRefused rule 1: protocol "udq" is not known; write udp, tcp or icmp; the rules of before hold`)
	require.NoError(t, b.ready())
	assert.Contains(t, b.nft.Dump(), limited)
	time.Sleep(10 * b.Interval)
	assert.Empty(t, b.events.Events, "the same is said again")

	b.write(nil)
	b.awaitLog("is not there", 2)
	require.NoError(t, b.ready())
	assert.Contains(t, b.nft.Dump(), limited)

	b.write(map[string]string{RulesKey: ""})
	b.await("Normal RulesApplied 0 rules are applied")
	assert.NotContains(t, b.nft.Dump(), limited)

	// Another container of the pod finds wrong rules: what the kernel has stays.
	b.write(map[string]string{RulesKey: example})
	b.await("Normal RulesApplied 1 rules are applied")
	stop()
	b.write(map[string]string{RulesKey: "- {}"})
	next := newBench(t)
	next.Client, next.nft = b.Client, b.nft
	next.Table.nft = b.nft
	defer next.run()()
	next.await("Warning RulesRefused rule 1: action is missing; write action: accept or action: drop; the rules of before hold")
	require.Error(t, next.ready())
	assert.Contains(t, next.nft.Dump(), limited)
}

// TestInterfacesThatComeLater: a firewall without its networks says so, and tries again.
func TestInterfacesThatComeLater(t *testing.T) {
	b := newBench(t)
	b.closed = errors.New("find interface chain-in: no such device")
	b.write(map[string]string{RulesKey: "[]"})
	defer b.run()()
	b.await("Warning RulesNotApplied find interface chain-in: no such device; nothing is forwarded")
	require.Error(t, b.ready())

	b.mu.Lock()
	b.closed = nil
	b.mu.Unlock()
	b.await("Normal RulesApplied")
	require.NoError(t, b.ready())
}

// TestThePageOfTheFirewall: rules, counters and the problem are read over HTTP.
func TestThePageOfTheFirewall(t *testing.T) {
	b := newBench(t)
	b.problem = "the ConfigMap was not read yet"
	server := httptest.NewServer(b.page().handler())
	defer server.Close()
	get := func(path string) (int, string) {
		r, err := http.Get(server.URL + path)
		require.NoError(t, err)
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return r.StatusCode, string(text)
	}
	code, text := get("/ready")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Equal(t, "the ConfigMap was not read yet\n", text)

	o := &corev1.ConfigMap{Data: map[string]string{RulesKey: example}}
	b.apply(t.Context(), o)
	code, _ = get("/ready")
	assert.Equal(t, http.StatusOK, code)
	_, text = get("/")
	assert.JSONEq(t, `{"rules":[{"rule":"{protocol: udp, port: 9000, limit: 100/second, action: drop}","packets":0}],
		"passed":0,"forwarded":0,"forwardedBytes":0,"dropped":0,"passedPerSecond":0,"droppedPerSecond":0}`, text)
	_, text = get("/metrics")
	assert.Regexp(t, `(?m)^chain_rules_changed_timestamp_seconds 1\.[0-9]+e\+09$`, text)
	assert.Contains(t, text, `chain_rule_packets_total{number="1",rule="{protocol: udp, port: 9000, limit: 100/second, action: drop}"} 0`)
	assert.Contains(t, text, "chain_rules_refused 0\n")

	b.apply(t.Context(), &corev1.ConfigMap{Data: map[string]string{RulesKey: "- 1"}})
	_, text = get("/metrics")
	assert.Contains(t, text, "chain_rules_refused 1\n")
	code, _ = get("/other")
	assert.Equal(t, http.StatusNotFound, code)
}

func TestMeter(t *testing.T) {
	at := time.Unix(1000, 0)
	m := meter{}
	assert.Zero(t, m.advance(50, at))
	assert.InDelta(t, 100, m.advance(550, at.Add(5*time.Second)), 0.01)
	assert.InDelta(t, 0, m.advance(550, at.Add(10*time.Second)), 0.01)
	assert.InDelta(t, 20, m.advance(100, at.Add(15*time.Second)), 0.01, "the count began again")
	assert.InDelta(t, 20, m.rate(), 0.01)
}

func TestGeneratorsThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		rate, size int
		says       string
	}{
		{0, 64, "rate 0: write 1 to 1000000 packets per second"},
		{2_000_000, 64, "rate 2000000"},
		{1, 0, "size 0: write 1 to 1400 bytes"},
		{1, 9000, "size 9000"},
	} {
		g := Generator{To: "127.0.0.1:9", Rate: c.rate, Size: c.size, Log: slog.New(slog.DiscardHandler)}
		assert.ErrorContains(t, g.Run(t.Context()), c.says)
	}
}
