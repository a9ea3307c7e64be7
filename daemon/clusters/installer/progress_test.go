package installer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// plan is a snapshot of stages in one word each: name=state, then what it waits for.
func plan(stages ...string) (s bringup.Snapshot) {
	for _, text := range stages {
		name, rest, _ := strings.Cut(text, "=")
		state, waiting, _ := strings.Cut(rest, " ")
		st := status.Stage{Name: name, State: status.State(state), Waiting: waiting}
		if state == "failed" {
			st.Waiting, st.Error = "", waiting
		}
		s.Stages = append(s.Stages, st)
	}
	return s
}

func TestProgress(t *testing.T) {
	plans := map[string]bringup.Snapshot{
		"":    plan("api-answers=working the control plane of m-1", "nodes-ready=waiting"),
		"m-1": plan("reached=ready", "images-present=working pulling image 3 of 8"),
		"w-1": plan("reached=ready", "joined=ready"),
	}
	order := []string{"", "m-1", "w-1"}
	assert.Equal(t, contract.Progress{Percent: 50, Doing: "m-1: images-present: pulling image 3 of 8",
		Nodes: map[string]string{"m-1": "images-present: pulling image 3 of 8", "w-1": "ready"}}, progressOf(plans, order))
	nodes := map[string]bringup.Snapshot{"w-1": plan("certificates-sign=working renewing its certificates")}
	assert.Equal(t, "w-1: certificates-sign: renewing its certificates", progressOf(nodes, []string{"w-1"}).Doing)
	titled := plan("control-plane-made=working kubeadm makes it")
	titled.Stages[0].Title = "The control plane is made"
	shown := progressOf(map[string]bringup.Snapshot{"m-1": titled}, []string{"m-1"})
	assert.Equal(t, "m-1: The control plane is made: kubeadm makes it", shown.Doing, "people do not know the name")
	delete(plans, "w-1")
	assert.Equal(t, "waiting", progressOf(plans, order).Nodes["w-1"])
	assert.Equal(t, contract.Progress{Doing: "starting", Nodes: map[string]string{}}, progressOf(nil, nil))
	done := map[string]bringup.Snapshot{"": plan("api-answers=ready")}
	assert.Equal(t, contract.Progress{Percent: 100, Doing: "done", Nodes: map[string]string{}}, progressOf(done, []string{""}))
}

// TestProgressDoesNotRunBackwards: the API answers, and more is done by it, while kubeadm is at its last steps.
func TestProgressDoesNotRunBackwards(t *testing.T) {
	order := []string{"", "m-1", "w-1"}
	var said []string
	for _, step := range []struct{ cluster, master, worker bringup.Snapshot }{
		{plan("api-answers=working", "system-applied=waiting", "nodes-ready=waiting"), plan("reached=ready", "control-plane-made=working kubeadm"), plan("joined=working")},
		{plan("api-answers=ready", "system-applied=working", "nodes-ready=waiting"), plan("reached=ready", "control-plane-made=working kubeadm"), plan("joined=working")},
		{plan("api-answers=ready", "system-applied=ready", "nodes-ready=working"), plan("reached=ready", "control-plane-made=working kubeadm"), plan("joined=working")},
		{plan("api-answers=ready", "system-applied=working", "nodes-ready=waiting"), plan("reached=ready", "control-plane-made=ready"), plan("joined=working kubeadm")},
		{plan("api-answers=ready", "system-applied=ready", "nodes-ready=working"), plan("reached=ready", "control-plane-made=ready"), plan("joined=working kubeadm")},
		{plan("api-answers=ready", "system-applied=ready", "nodes-ready=working w-1"), plan("reached=ready", "control-plane-made=ready"), plan("joined=ready")},
	} {
		said = append(said, progressOf(map[string]bringup.Snapshot{"": step.cluster, "m-1": step.master, "w-1": step.worker}, order).Doing)
	}
	assert.Equal(t, []string{"m-1: control-plane-made: kubeadm", "m-1: control-plane-made: kubeadm", "m-1: control-plane-made: kubeadm",
		"system-applied", "w-1: joined: kubeadm", "nodes-ready: w-1"}, said)

	tr := newTracker(t.TempDir(), new(strings.Builder), order[:1])
	for _, s := range []bringup.Snapshot{plan("a=ready", "b=waiting"), plan("a=working", "b=waiting")} {
		tr.update("", s)
	}
	text, err := os.ReadFile(tr.path)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"percent":50`)
}

func TestHowARunEnds(t *testing.T) {
	const limit = 10 * time.Minute
	order := []string{"", "m-1", "w-1"}
	ready := plan("reached=ready", "joined=ready")
	for _, c := range []struct {
		what    string
		plans   map[string]bringup.Snapshot
		stalled time.Duration
		says    string // "" done; goes on
		forGood bool
	}{
		{"all is as wanted", map[string]bringup.Snapshot{"": ready, "m-1": ready, "w-1": ready}, time.Hour, "", false},
		{"a plan has said nothing yet", map[string]bringup.Snapshot{"": ready, "m-1": ready}, 0, "goes on", false},
		{"at work", map[string]bringup.Snapshot{"": ready, "m-1": ready, "w-1": plan("reached=working no route to host")}, time.Minute, "goes on", false},
		{"a node is dead", map[string]bringup.Snapshot{"": plan("nodes-ready=working w-1 has not joined"), "m-1": ready, "w-1": plan("reached=working reach w-1: no route to host", "joined=waiting")},
			limit + 1, "nothing came true for 10m0s: nodes-ready: w-1 has not joined; w-1: reached: reach w-1: no route to host", false},
		{"a node must be mended, others are on their way", map[string]bringup.Snapshot{"": plan("nodes-ready=working"), "m-1": plan("reached=working"), "w-1": plan("reached=failed it belongs to cluster core")}, time.Minute, "goes on", false},
		{"a node must be mended, the others are as far as they come", map[string]bringup.Snapshot{"": plan("nodes-ready=working"), "m-1": ready, "w-1": plan("reached=failed it belongs to cluster core")}, limit/5 + 1, "w-1: reached: it belongs to cluster core", true},
		{"only that is left", map[string]bringup.Snapshot{"": ready, "m-1": ready, "w-1": plan("reached=failed it belongs to cluster core")}, 0, "w-1: reached: it belongs to cluster core", true},
	} {
		err := outcomeOf(c.plans, order, c.stalled).result(limit)
		switch c.says {
		case "":
			assert.NoError(t, err, c.what)
		case "goes on":
			assert.Equal(t, errGoesOn, err, c.what)
		default:
			assert.EqualError(t, err, c.says, c.what)
			assert.Equal(t, c.forGood, bringup.IsPermanent(err), c.what)
		}
	}
}

func TestTrackerTellsEachThingOnce(t *testing.T) {
	dir := t.TempDir()
	var out strings.Builder
	tr := newTracker(dir, &out, []string{"", "m-1"})
	for range 3 {
		tr.update("m-1", plan("reached=ready", "joined=working kubeadm joins it"))
		tr.update("", plan("api-answers=failed no hope"))
	}
	assert.Equal(t, 1, strings.Count(out.String(), "m-1: reached: ok"))
	assert.Equal(t, 1, strings.Count(out.String(), "api-answers: no hope"))
	assert.NotContains(t, out.String(), "joined")
	text, err := os.ReadFile(filepath.Join(dir, "progress.json"))
	require.NoError(t, err)
	var p contract.Progress
	require.NoError(t, json.Unmarshal(text, &p))
	assert.Equal(t, 33, p.Percent)
	assert.Equal(t, "joined: kubeadm joins it", p.Nodes["m-1"])
}
