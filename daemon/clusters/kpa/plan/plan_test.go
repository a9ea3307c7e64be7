package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

func TestCyclesAreFoundAndDiamondsAreNone(t *testing.T) {
	for name, c := range map[string]struct {
		nodes []Node
		want  map[string][]string
	}{
		"nothing": {nil, map[string][]string{}},
		"chain":   {[]Node{{"a", nil}, {"b", []string{"a"}}, {"c", []string{"b"}}}, map[string][]string{}},
		"diamond": {
			[]Node{{"top", []string{"left", "right"}}, {"left", []string{"base"}}, {"right", []string{"base"}}, {"base", nil}},
			map[string][]string{},
		},
		"itself": {[]Node{{"a", []string{"a"}}}, map[string][]string{"a": {"a", "a"}}},
		"pair and one that waits for it": {
			[]Node{{"a", []string{"b"}}, {"b", []string{"a"}}, {"c", []string{"a"}}},
			map[string][]string{"a": {"a", "b", "a"}, "b": {"b", "a", "b"}},
		},
		"the shortest way": {
			[]Node{{"a", []string{"b", "c"}}, {"b", []string{"c"}}, {"c", []string{"a"}}},
			map[string][]string{"a": {"a", "c", "a"}, "b": {"b", "c", "a", "b"}, "c": {"c", "a", "c"}},
		},
		"a name that no one has": {[]Node{{"a", []string{"absent"}}}, map[string][]string{}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, FindCycles(c.nodes)) })
	}
}

func TestDependentsGoFirst(t *testing.T) {
	nodes := []Node{{"z", []string{"base"}}, {"b", []string{"base", "z"}}, {"base", nil}}
	assert.Equal(t, []string{"b", "z"}, ListDependents("base", nodes))
	assert.Equal(t, []string{"b"}, ListDependents("z", nodes))
	assert.Empty(t, ListDependents("b", nodes))
}

func TestDependencies(t *testing.T) {
	ready := Dependency{Name: "base", Exists: true, Current: true, Phase: v1alpha1.PhaseReady}
	in := func(phase string) Dependency {
		return Dependency{Name: "cni", Exists: true, Current: true, Phase: phase}
	}
	edited, skipped := in(v1alpha1.PhaseReady), in(v1alpha1.PhaseSkipped)
	edited.Current, skipped.OrSkipped = false, true
	for name, c := range map[string]struct {
		all    []Dependency
		reason string
		phase  string
	}{
		"none":       {nil, "", ""},
		"ready":      {[]Dependency{ready}, "", ""},
		"absent":     {[]Dependency{ready, {Name: "cni"}}, ReasonDependencyMissing, v1alpha1.PhaseWaiting},
		"edited now": {[]Dependency{edited}, ReasonDependencyWaits, v1alpha1.PhaseWaiting},
		"failed":     {[]Dependency{in(v1alpha1.PhaseFailed)}, ReasonDependencyWaits, v1alpha1.PhaseWaiting},
		"skipped":    {[]Dependency{in(v1alpha1.PhaseSkipped)}, ReasonDependencySkipped, v1alpha1.PhaseSkipped},
		"or skipped": {[]Dependency{skipped}, "", ""},
		"and more":   {[]Dependency{skipped, in(v1alpha1.PhaseFailed)}, ReasonDependencyWaits, v1alpha1.PhaseWaiting},
	} {
		t.Run(name, func(t *testing.T) {
			v := CheckDependencies(c.all)
			if c.reason == "" {
				assert.Nil(t, v)
				return
			}
			assert.Equal(t, [2]string{c.phase, c.reason}, [2]string{v.Phase, v.Reason})
		})
	}
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func settings() Settings {
	return Settings{Interval: 10 * time.Minute, RetryInterval: 30 * time.Second, Timeout: time.Minute, Retries: 2}
}

func TestAnAttemptThatTakesTooLongHasFailed(t *testing.T) {
	c, ok := Begin(v1alpha1.ClusterStatus{Name: "edge"}, settings(), "r1", false, noon)
	assert.True(t, ok)
	waits := Verdict{v1alpha1.PhaseHealth, ReasonNotHealthy, "Deployment web: 0 of 1"}
	c = Conclude(c, settings(), waits, noon)
	assert.Equal(t, v1alpha1.PhaseHealth, c.Phase)
	c = Conclude(c, settings(), waits, noon.Add(59*time.Second))
	assert.Equal(t, v1alpha1.PhaseHealth, c.Phase)
	c = Conclude(c, settings(), waits, noon.Add(time.Minute))
	assert.Equal(t, v1alpha1.PhaseFailed, c.Phase)
	assert.Equal(t, ReasonTimeout, c.Reason)
	assert.Equal(t, "not ready within 1m0s: Deployment web: 0 of 1", c.Message)
	assert.Equal(t, noon.Add(90*time.Second), c.Next.Time)
}

func TestAttemptsAreCountedAndEnd(t *testing.T) {
	s, now := settings(), noon
	c := v1alpha1.ClusterStatus{Name: "edge", Revision: "r1"}
	bad := Verdict{v1alpha1.PhaseFailed, ReasonApplyFailed, "refused"}
	for _, wait := range []time.Duration{30 * time.Second, time.Minute} {
		c = Conclude(c, s, bad, now)
		assert.Equal(t, now.Add(wait), c.Next.Time)
		_, ok := Begin(c, s, "r1", false, now.Add(wait-time.Second))
		assert.False(t, ok, "before its time")
		now = now.Add(wait)
		c, ok = Begin(c, s, "r1", false, now)
		assert.True(t, ok)
	}
	c = Conclude(c, s, bad, now)
	assert.Nil(t, c.Next)
	assert.Equal(t, "refused (after 3 attempts; nothing more is tried until it is edited)", c.Message)
	_, ok := Begin(c, s, "r1", false, now.Add(time.Hour))
	assert.False(t, ok)

	again, ok := Begin(c, s, "r1", true, now)
	assert.True(t, ok, "an edit tries again")
	assert.Zero(t, again.Attempts)
	again, ok = Begin(c, s, "r2", false, now)
	assert.True(t, ok, "so does another revision")
	assert.Zero(t, again.Attempts)
}

func TestDelaysGrowUpToTheInterval(t *testing.T) {
	s := settings()
	assert.Equal(t, 30*time.Second, s.delay(1))
	assert.Equal(t, 2*time.Minute, s.delay(3))
	assert.Equal(t, 10*time.Minute, s.delay(40))
	s.RetryInterval = time.Hour
	assert.Equal(t, time.Hour, s.delay(5), "never below what was asked for")
}

func TestWhatWasReadyIsDegraded(t *testing.T) {
	c := v1alpha1.ClusterStatus{Name: "edge", Revision: "r1", Phase: v1alpha1.PhaseReady}
	sick := Verdict{v1alpha1.PhaseHealth, ReasonNotHealthy, "Deployment web: 0 of 1"}
	for _, later := range []time.Duration{0, time.Hour} {
		c, _ = Begin(c, settings(), "r1", false, noon.Add(later))
		c = Conclude(c, settings(), sick, noon.Add(later))
		assert.Equal(t, v1alpha1.PhaseDegraded, c.Phase)
		assert.Zero(t, c.Attempts)
	}
	c = Conclude(c, settings(), Verdict{Phase: v1alpha1.PhaseReady, Reason: ReasonReady}, noon)
	assert.Equal(t, v1alpha1.PhaseReady, c.Phase)

	c, _ = Begin(c, settings(), "r2", false, noon)
	c = Conclude(c, settings(), sick, noon)
	assert.Equal(t, v1alpha1.PhaseHealth, c.Phase, "another revision was never ready")
}

func TestTheWorstClusterSpeaks(t *testing.T) {
	at := func(name, phase string) v1alpha1.ClusterStatus {
		return v1alpha1.ClusterStatus{Name: name, Phase: phase, Reason: phase + "!", Message: phase + " there"}
	}
	s := Summarize(nil)
	assert.Equal(t, [2]string{ReasonNoCluster, "0/0"}, [2]string{s.Reason, s.Ready})
	s = Summarize([]v1alpha1.ClusterStatus{at("a", v1alpha1.PhaseReady), at("b", v1alpha1.PhaseFailed), at("c", v1alpha1.PhaseApplying)})
	assert.Equal(t, Summary{Verdict{v1alpha1.PhaseFailed, "Failed!", "cluster b: Failed there"}, "1/3"}, s)
	s = Summarize([]v1alpha1.ClusterStatus{at("a", v1alpha1.PhaseSkipped), at("b", v1alpha1.PhaseReady)})
	assert.Equal(t, v1alpha1.PhaseReady, s.Phase)
	assert.Equal(t, "1/2", s.Ready)
}

func TestSettingsOfASpec(t *testing.T) {
	assert.Equal(t, Settings{10 * time.Minute, 30 * time.Second, 10 * time.Minute, -1}, NewSettings(v1alpha1.ComponentSpec{}))
	zero := int32(0)
	s := NewSettings(v1alpha1.ComponentSpec{
		Interval:      &metav1.Duration{Duration: time.Millisecond},
		RetryInterval: &metav1.Duration{Duration: time.Millisecond},
		Timeout:       &metav1.Duration{Duration: 5 * time.Second},
		Retries:       &zero,
	})
	assert.Equal(t, Settings{10 * time.Second, time.Second, 5 * time.Second, 0}, s, "no Component keeps a processor busy")
}
