package view

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/image/lab/virtualrack"
	"firstlight.dev/firstlight/image/lab/vswitch"
)

func TestWhyLab(t *testing.T) {
	now := time.Unix(1e9, 0)
	since := now.Add(-90 * time.Second)
	for want, m := range map[string]virtualrack.Machine{
		"node-1: inspecting for 1m30s; the ramdisk looks; have patience":                                      {Name: "node-1", On: true, Phase: "inspecting", Since: since, Why: "the ramdisk looks", Next: "have patience"},
		"node-1: waiting for 1m30s; it has no power, and the appliance has not spoken of it":                  {Name: "node-1", Phase: virtualrack.PhaseWaiting, Since: since, Last: "old"},
		"node-1: waiting for 1m30s; the appliance has not spoken of it; its console says: iPXE":               {Name: "node-1", On: true, Phase: virtualrack.PhaseWaiting, Since: since, Last: "iPXE"},
		"node-1: new for 1m30s; its cable to provisioning loses 10 % of the frames":                           {Name: "node-1", On: true, Phase: "new", Since: since, Cables: []virtualrack.Cable{{Network: "provisioning", Fault: vswitch.Fault{Loss: 0.1}}, {Network: "data"}}},
		"appliance: control-plane for 1m30s; control-plane: the API server answers with 503; it comes":        {Name: "appliance", On: true, Phase: "control-plane", Since: since, Error: "control-plane: the API server answers with 503", Next: "it comes"},
		"node-1: inspecting for 1m30s; the ramdisk looks; it is throttled to 0.5 processors of this computer": {Name: "node-1", On: true, Phase: "inspecting", Since: since, Why: "the ramdisk looks", Share: 0.5},
	} {
		assert.Equal(t, want, describeMachine(m, now))
	}
}

func TestStuck(t *testing.T) {
	got := DescribeStuck(virtualrack.Status{Machines: []virtualrack.Machine{
		{Name: "appliance", Phase: virtualrack.PhaseReady}, {Name: "node-1", Phase: "inspecting", Share: 0.1}, {Name: "node-2", Phase: "provisioning"},
		{Name: "node-3", Phase: "provisioning", Paused: true}, {Name: "node-4", Phase: virtualrack.PhaseVerified},
	}, Clusters: []virtualrack.Cluster{{Name: "edge", Phase: "waiting"}}}, 40*time.Minute)
	assert.Contains(t, got, "nothing has changed for 40 min (node-1 is in inspecting and throttled, node-2 is in provisioning, node-3 is paused, cluster edge is waiting). It is on still")
}

func TestOverdraw(t *testing.T) {
	assert.Equal(t, "a\x1b[K\nb\x1b[K\n\x1b[J", clearBehind("a\nb\n"))
}

func TestAFailureMustStand(t *testing.T) {
	at := time.Unix(0, 0)
	end := NewEndDetector(func() time.Time { return at }, 20*time.Minute)
	fails, works := virtualrack.Status{Over: true, Failed: true}, virtualrack.Status{}
	for _, step := range []struct {
		second int64
		status virtualrack.Status
		want   bool
	}{{0, works, false}, {1, fails, false}, {1200, fails, false}, {1201, works, false}, {1202, fails, false}, {2401, fails, false}, {2402, fails, true}} {
		at = time.Unix(step.second, 0)
		assert.Equal(t, step.want, end(step.status), "%d s", step.second)
	}
	at = time.Unix(5000, 0)
	getsOn, waits := virtualrack.Status{Text: "it gets on"}, virtualrack.Status{Text: "it gets on", Machines: []virtualrack.Machine{{Name: "node-1", Percent: 3}}}
	for _, step := range []struct {
		second int64
		status virtualrack.Status
		want   bool
	}{{5000, works, false}, {6199, getsOn, false}, {7398, getsOn, false}, {7399, waits, false}, {8598, waits, false}, {8599, waits, true}} {
		at = time.Unix(step.second, 0)
		assert.Equal(t, step.want, end(step.status), "%d s", step.second)
	}
	assert.True(t, end(virtualrack.Status{Over: true}), "what went well is over at once")
	assert.True(t, end(virtualrack.Status{Over: true, Failed: true, Dead: true}), "an appliance that does not run mends nothing")
}
