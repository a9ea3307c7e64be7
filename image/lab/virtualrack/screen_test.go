package virtualrack

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/goldentest"
)

func someStatus(now time.Time) Status {
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	return Status{Dir: "build/lab", Since: ago(724 * time.Second), Text: "0 of 2 nodes proven", Machines: []Machine{
		{Name: "appliance", On: true, Phase: PhaseReady, Percent: 100, Since: ago(5 * time.Minute), Last: "firstlight: Ready. Log in: ssh root@172.22.0.1"},
		{Name: "node-1", On: true, Phase: "inspecting", Percent: 15, Since: ago(61 * time.Second), Why: "the ramdisk looks at its hardware", Last: "\x1b[2JiPXE 1.21.1\tinitialising devices...ok"},
		{Name: "node-2", Phase: PhaseWaiting, Since: ago(2 * time.Hour), Why: "its BMC refuses the password", Error: "Failed to get power state: ipmitool: RAKP 2 HMAC is invalid", Next: "correct nodes[1].bmc.password in site.yaml"},
	}, Unknown: []UnknownMachine{{"52:54:00:f1:02:01", "node-2", "is not in site.yaml: when it boots from the network it is looked at, and never written to", "add it to nodes in site.yaml with this MAC"}}, Clusters: []Cluster{{Name: "edge", Phase: "waiting", Since: ago(time.Minute), Why: "of 2 hosts none is proven",
		Members: []ClusterNode{{Name: "master-1", Server: "node-1", Roles: []string{"master", "worker"}, Phase: memberInstalled}, {Name: "worker-1", Roles: []string{"worker"}, Phase: "waiting", Why: "no host is left with 16 CPUs"}}}}}
}

func TestScreen(t *testing.T) {
	now := time.Unix(1e9, 0).UTC()
	s := someStatus(now)
	goldentest.Check(t, "testdata/roomy.screen", RenderScreen(s, 120, 40, now))
	goldentest.Check(t, "testdata/usual.screen", RenderScreen(s, 80, 24, now))
	goldentest.Check(t, "testdata/members.screen", RenderScreen(s, 80, 9, now))
	s.Outside, s.Faults = map[string]int{"8.8.8.8": 3, "1.1.1.1": 1}, []string{"BMC of node-2 has ended"}
	slow := someStatus(now)
	slow.Machines[0].Share, slow.Machines[1].Share = 0.5, 1
	assert.Contains(t, RenderScreen(slow, 120, 40, now), "\nThrottled, to so many processors of this computer: appliance (0.5), node-1 (1)\n")
	goldentest.Check(t, "testdata/narrow.screen", RenderScreen(s, 60, 8, now))
	for _, size := range [][2]int{{0, 0}, {10, 3}, {80, 5}, {80, 25}} {
		text := RenderScreen(s, size[0], size[1], now)
		assert.LessOrEqual(t, strings.Count(text, "\n"), max(4, size[1]))
		for line := range strings.SplitSeq(text, "\n") {
			assert.LessOrEqual(t, len([]rune(line)), max(60, size[0]))
		}
	}
}

func TestNews(t *testing.T) {
	now := time.Unix(1e9, 0).UTC()
	before := someStatus(now)
	assert.Empty(t, RenderChanges(before, before, now))
	goldentest.Check(t, "testdata/first.news", RenderChanges(Status{}, before, now))
	after := someStatus(now)
	after.Machines[1].Phase, after.Machines[1].Since = "provisioning", now
	after.Machines[1].Last = "a line of the console is no news"
	after.Machines[2].Why, after.Machines[2].Next = "its BMC is asked", ""
	after.Unknown = append(after.Unknown, UnknownMachine{"52:54:00:f1:03:01", "", "is not in site.yaml", ""})
	after.Clusters = []Cluster{{Name: "edge", Phase: "installing", Percent: 20, Since: now, Nodes: "0/2", Why: "images-present: node-1, node-2"}}
	after.Clusters[0].Members = []ClusterNode{{Name: "master-1", Server: "node-1", Roles: []string{"master"}, Phase: memberInstalling, Why: "images-present: pulling image 1 of 8"}, before.Clusters[0].Members[1]}
	after.Outside = map[string]int{"8.8.8.8": 3}
	after.Faults = []string{"BMC of node-2 has ended"}
	goldentest.Check(t, "testdata/second.news", RenderChanges(before, after, now))
	stale := someStatus(now)
	stale.Machines[2].Error = "Failed to get power state: another number"
	assert.Empty(t, RenderChanges(before, stale, now), "there is a sentence for it")
	step := someStatus(now)
	step.Clusters = []Cluster{{Name: "edge", Phase: "installing", Nodes: "0/2", Since: now, Why: "node-1: pulling image 1 of 8"}}
	next := someStatus(now)
	step.Clusters[0].Members = []ClusterNode{{Name: "master-1", Server: "node-1", Phase: memberInstalling, Why: "images-present: pulling image 1 of 8"}}
	next.Clusters = []Cluster{step.Clusters[0]}
	next.Clusters[0].Members = []ClusterNode{{Name: "master-1", Server: "node-1", Phase: memberInstalling, Why: "programs-installed"}}
	next.Clusters[0].Why = "node-1: pulling image 2 of 8"
	assert.Empty(t, RenderChanges(step, next, now), "counting on is no news")
	next.Clusters[0].Why = "node-1: installing programs"
	assert.Equal(t, "01:46:40 cluster edge: installing; node-1: installing programs\n", RenderChanges(step, next, now))
}

func TestPhaseTable(t *testing.T) {
	goldentest.Check(t, "testdata/phases", PhaseTable([]Span{
		{"appliance", "firmware", 4, 3, false}, {"appliance", "site-read", 0.2, 0.1, false}, {"appliance", "control-plane", 126, 240, false}, {"appliance", "ready", 500, 90, true},
		{"node-1", "waiting", 100, 0, false}, {"node-1", "inspecting", 50, 30, false}, {"node-1", "off", 40000, 0, false}, {"node-1", "inspecting", 200, 150, true},
	}))
}

func TestTook(t *testing.T) {
	for d, want := range map[time.Duration]string{-time.Second: "0 s", 59 * time.Second: "59 s", 61 * time.Second: "1:01 min", 62 * time.Minute: "1:02 h"} {
		assert.Equal(t, want, formatDuration(d))
	}
}
