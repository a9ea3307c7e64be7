package console

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/status"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func documents() map[string]status.Document {
	first := status.Document{Version: "0.1.0", Name: "firstlight", BootID: "b007", State: status.StateWorking, Next: "Nothing to do: it comes up automatically.",
		Stages: []status.Stage{{Name: "data-mounted", Title: "Storage is mounted", State: status.StateWorking, Since: now}, {Name: "links-up", Title: "Networks get their addresses", State: status.StateWaiting, Since: now}}}
	waiting := first
	waiting.Name = "firstlight-ab12"
	waiting.Addresses = []status.Address{
		{Role: "provisioning", Interface: "provisioning", Addresses: []string{"172.22.0.1/24"}, NICs: []status.NIC{{Name: "eno1", MAC: "52:54:00:00:00:01", Link: true}}},
		{Role: "baremetal", Interface: "baremetal", NICs: []status.NIC{{Name: "eno2", MAC: "52:54:00:00:00:02"}}},
		{Role: "bmc", Interface: "bmc", Addresses: []string{"10.0.0.9/24"}},
	}
	waiting.Stages = []status.Stage{
		{Name: "data-mounted", Title: "Storage is mounted", State: status.StateReady, Seconds: 2.34, Attempts: 1},
		{Name: "links-up", Title: "Networks get their addresses", State: status.StateReady},
		{Name: "images-present", Title: "Container images are put in place", State: status.StateWorking, Since: now.Add(-75 * time.Second), Attempts: 3, Waiting: "importing image 3 of 7", Error: "import coredns: no space left on device"},
		{Name: "node-ready", Title: "The appliance's node becomes ready", State: status.StateWaiting},
	}
	waiting.Notes = []string{"eno3 has a link and no role; name it in site.yaml to use it"}
	stopped := first
	stopped.State = status.StateFailed
	stopped.Stages = []status.Stage{{Name: "site-read", Title: "The site document is read", State: status.StateFailed, Since: now,
		Error: "site.yaml:3: nam: unknown key; did you mean name?\nsite.yaml:9: nodes[0].bmc: \x1b[2Jscheme; use ipmi://"}}
	stopped.Next = "Correct site.yaml on the stick's SITE partition."
	ready := waiting
	ready.State, ready.Notes = status.StateReady, nil
	ready.Next = "Log in: ssh root@172.22.0.1"
	ready.Stages = []status.Stage{{Name: "data-mounted", Title: "Storage is mounted", State: status.StateReady}, {Name: "node-ready", Title: "The appliance's node becomes ready", State: status.StateReady, Attempts: 1, Seconds: 11.5}}
	ready.Nodes = []status.Node{
		{Name: "node-1", State: "provisioned", Rule: "proven", Why: "is installed and proven", Since: now.Add(-time.Hour), Verified: true},
		{Name: "node-2", State: "absent", Rule: "preflight", Why: "is not switched on: the BMC refuses\nuser \x1badmin", Since: now.Add(-90 * time.Second), Next: "correct bmc.password of node-2 in site.yaml"},
		{Name: "node-3", State: "error", Error: "BMC: wrong password"},
	}
	ready.Launch = status.Launch{State: status.LaunchFailed, Text: "1 of 3 nodes proven; not launched: node-2, node-3", Verified: 1, Nodes: 3, Elapsed: 720, Limit: 3600}
	ready.Clusters = []status.Cluster{{Name: "edge", State: "installing", Members: []status.ClusterNode{
		{Name: "master-1", Roles: []string{"master"}, Host: "metal3/node-1", Address: "172.22.0.101", State: "claimed"},
		{Name: "worker-1", Roles: []string{"worker"}, State: "waiting", Reason: "no host is left with 16 CPUs"},
	}}, {Name: "far", State: "ready", Members: []status.ClusterNode{{Name: "master-1", State: "installed"}}}}
	broken := ready
	broken.State = status.StateDegraded
	broken.Stages = []status.Stage{{Name: "container-runtime", Title: "The container runtime starts", State: status.StateDegraded, Since: now.Add(-2 * time.Hour), Attempts: 1, Error: "containerd.service is failed"}}
	return map[string]status.Document{"1-first": first, "2-waiting": waiting, "3-stopped": stopped, "4-ready": ready, "5-broken": broken}
}

func TestText(t *testing.T) {
	for name, d := range documents() {
		t.Run(name, func(t *testing.T) { goldentest.Check(t, "testdata/"+name+".screen", RenderText(d, now)) })
	}
}

func TestTextTellsWhereDHCPIsServed(t *testing.T) {
	d := status.Document{Addresses: []status.Address{{Role: "bmc"}, {Role: "baremetal", DHCP: "silent"}}}
	text := RenderText(d, time.Time{})
	assert.Contains(t, text, "baremetal     no address yet     (no NIC) DHCP silent\n")
	assert.Contains(t, text, "bmc           no address yet     (no NIC)\n")
}

func TestTextMarksWhatFollowsReady(t *testing.T) {
	d := status.Document{State: status.StateReady, Stages: []status.Stage{
		{Name: "links-up", State: status.StateReady},
		{Name: "cluster-api-ready", Title: "Cluster API starts", AfterReady: true, State: status.StateWorking, Waiting: "applying"},
	}}
	text := RenderText(d, time.Time{})
	assert.Contains(t, text, "Ready. On its way: 1 of 2 stages\n")
	assert.Contains(t, text, "[ .. ] Cluster API starts, after Ready, for 0 s\n         applying\n")

	d.Stages[1].State = status.StateReady
	assert.Contains(t, RenderText(d, time.Time{}), "[ ok ] Cluster API starts\n")
	assert.Contains(t, RenderText(d, time.Time{}), "[ ok ] links-up\n", "a version without titles")
}

// A rack of thirty on a screen in text mode: what a person may have to act on is there, the rest is counted.
func TestScreenThatIsTooSmall(t *testing.T) {
	d := documents()["4-ready"]
	assert.Equal(t, RenderText(d, now), RenderScreen(d, now, 100))
	for i := range 22 {
		d.Stages = append(d.Stages, status.Stage{Name: fmt.Sprintf("stage-%d", i), State: status.StateReady})
	}
	for i := range 28 {
		d.Nodes = append(d.Nodes, status.Node{Name: fmt.Sprintf("more-%d", i), Verified: true})
	}
	goldentest.Check(t, "testdata/small.screen", RenderScreen(d, now, 25))
	shown := frame(composeScreen(d, now, 80, 25))
	for _, part := range []string{d.Next, "24 of 24 stages", "launch ", "node node-2", "node node-3", "cluster edge", "29 of 31 are installed and proven"} {
		assert.Contains(t, shown, part)
	}
}

func TestNothingToLaunchIsSaid(t *testing.T) {
	d := status.Document{Launch: status.Launch{State: status.LaunchNothing, Text: "nothing to launch: site.yaml names no nodes"}}
	assert.Contains(t, RenderText(d, now), "launch                 nothing to launch: site.yaml names no nodes\n")
	assert.Contains(t, RenderChanges(status.Document{}, d), "firstlight: launch: nothing to launch: site.yaml names no nodes\n")
}

func TestChanges(t *testing.T) {
	ds := documents()
	var all strings.Builder
	var last status.Document
	for _, name := range []string{"1-first", "2-waiting", "3-stopped", "2-waiting", "4-ready", "5-broken", "4-ready"} {
		all.WriteString("--- " + name + "\n" + RenderChanges(last, ds[name]))
		assert.Empty(t, RenderChanges(ds[name], ds[name]), "%s told twice", name)
		last = ds[name]
	}
	goldentest.Check(t, "testdata/serial", all.String())
}

func TestFrameFitsAndNeverClears(t *testing.T) {
	text := strings.Repeat("a line that is longer than the screen\n", 40)
	got := frame(fit(text, 20, 10))
	assert.NotContains(t, got, "\x1b[2J", "clearing first flickers")
	lines := strings.Split(got, "\r\n")
	require.Len(t, lines, 10)
	assert.Contains(t, lines[9], "31 more lines")
	for _, l := range lines[1:9] {
		assert.LessOrEqual(t, len([]rune(strings.TrimSuffix(l, "\x1b[K"))), 20)
	}
}

func TestKernelConsoles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "active")
	require.NoError(t, os.WriteFile(path, []byte("tty0 ttyS0 hvc0 ttyAMA1\n"), 0o644))
	assert.Equal(t, []string{"/dev/ttyS0", "/dev/hvc0", "/dev/ttyAMA1"}, kernelConsoles(path))
}

func TestRunWritesTheFirstLineAtOnceAndOnlyChangesLater(t *testing.T) {
	dir := t.TempDir()
	screen, serial := filepath.Join(dir, "screen"), filepath.Join(dir, "serial")
	for _, p := range []string{screen, serial} {
		require.NoError(t, os.WriteFile(p, nil, 0o644))
	}
	drawn := make(chan struct{}, 8)
	changed := make(chan struct{})
	c := &Console{Changed: changed, Screens: []string{screen, filepath.Join(dir, "missing")}, Lines: []string{serial}, Log: slog.New(slog.DiscardHandler),
		Document: func() status.Document { drawn <- struct{}{}; return documents()["1-first"] }}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	<-drawn
	changed <- struct{}{} // taken only after the first drawing is written
	<-drawn
	cancel()
	require.NoError(t, <-ended)
	text, err := os.ReadFile(serial)
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(string(text), "firstlight 0.1.0"), "told again though nothing changed:\n%s", text)
	text, err = os.ReadFile(screen)
	require.NoError(t, err)
	assert.Contains(t, string(text), "Firstlight 0.1.0")
}

func TestThePacketFilterIsNamed(t *testing.T) {
	d := status.Document{Firewall: &status.Firewall{Table: "inet firstlight", Loaded: true}}
	assert.Contains(t, RenderText(d, time.Now()), "packet filter table inet firstlight\n")
	d.Firewall = &status.Firewall{Table: "inet firstlight", Allowed: []string{"ssh from bmc", "packets from baremetal to bmc"}}
	assert.Contains(t, RenderText(d, time.Now()),
		"packet filter table inet firstlight, not loaded; the site also allows ssh from bmc, packets from baremetal to bmc\n")
}

func TestAComponentThatIsReadyIsShort(t *testing.T) {
	c := status.Component{Name: "default/edge-nfd", State: "waiting", Clusters: "0/1", Text: "waits for multus"}
	assert.Equal(t, "component default/edge-nfd waiting, clusters 0/1: waits for multus", ComponentText(c))
	c.State, c.Clusters, c.Text = "ready", "1/1", "installed and healthy"
	assert.Equal(t, "component default/edge-nfd ready, clusters 1/1", ComponentText(c))
	text := RenderText(status.Document{Components: []status.Component{c}}, time.Time{})
	assert.Contains(t, text, "component default/edge-nfd ready, clusters 1/1\n")
}
