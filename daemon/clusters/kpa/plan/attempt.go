package plan

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

// Settings are how often and how long something is tried.
type Settings struct {
	Interval      time.Duration
	RetryInterval time.Duration
	Timeout       time.Duration
	Retries       int32 // after the first; negative: no limit
}

// NewSettings are a Component's, with what it leaves out.
func NewSettings(s v1alpha1.ComponentSpec) Settings {
	or := func(d *metav1.Duration, otherwise time.Duration) time.Duration {
		if d == nil || d.Duration <= 0 {
			return otherwise
		}
		return d.Duration
	}
	out := Settings{
		Interval:      max(or(s.Interval, 10*time.Minute), 10*time.Second),
		RetryInterval: max(or(s.RetryInterval, 30*time.Second), time.Second),
		Timeout:       or(s.Timeout, 10*time.Minute),
		Retries:       -1,
	}
	if s.Retries != nil {
		out.Retries = *s.Retries
	}

	return out
}

// delay is how long after the nth failure in a row the next attempt begins.
func (s Settings) delay(failures int32) time.Duration {
	d := s.RetryInterval
	for range failures - 1 {
		if d *= 2; d >= s.Interval {
			break
		}
	}
	return max(min(d, s.Interval), s.RetryInterval)
}

// isUsedUp reports whether no attempt is left.
func (s Settings) isUsedUp(failures int32) bool { return s.Retries >= 0 && failures > s.Retries }

// Begin prepares the status of one cluster for a look. It is false if there is nothing to try before Next, or until
// something is edited. A new revision, or an edit, begins with the first attempt.
func Begin(
	before v1alpha1.ClusterStatus, s Settings, revision string, edited bool, now time.Time,
) (v1alpha1.ClusterStatus, bool) {
	c := before
	if edited || before.Revision != revision {
		c.Revision, c.Attempts, c.Since, c.Next = revision, 0, nil, nil
		if c.Phase == v1alpha1.PhaseReady || c.Phase == v1alpha1.PhaseDegraded {
			c.Phase = v1alpha1.PhaseWaiting
		}
	}

	if c.Phase == v1alpha1.PhaseFailed && c.Attempts > 0 {
		if s.isUsedUp(c.Attempts) || c.Next != nil && now.Before(c.Next.Time) {
			return c, false
		}
		c.Since, c.Next = nil, nil
	}

	return c, true
}

// Conclude is the status of one cluster after a look. What takes longer than the timeout has failed; what was ready
// and is no longer is degraded.
func Conclude(before v1alpha1.ClusterStatus, s Settings, v Verdict, now time.Time) v1alpha1.ClusterStatus {
	c := before
	wasReady := before.Phase == v1alpha1.PhaseReady || before.Phase == v1alpha1.PhaseDegraded
	c.Phase, c.Reason, c.Message = v.Phase, v.Reason, v.Message
	switch {
	case v.Phase == v1alpha1.PhaseHealth && wasReady:
		c.Phase = v1alpha1.PhaseDegraded
	case IsInProgress(v.Phase):
		if c.Since == nil {
			c.Since = stamp(now)
		}
		if now.Sub(c.Since.Time) >= s.Timeout {
			return fail(c, s, Verdict{
				Reason:  ReasonTimeout,
				Message: fmt.Sprintf("not ready within %s: %s", s.Timeout, v.Message),
			}, now)
		}
	case v.Phase == v1alpha1.PhaseFailed:
		return fail(c, s, v, now)
	case v.Phase == v1alpha1.PhaseReady, v.Phase == v1alpha1.PhaseSkipped:
		c.Attempts, c.Since, c.Next = 0, nil, nil
	}

	return c
}

// fail counts a failure.
func fail(c v1alpha1.ClusterStatus, s Settings, v Verdict, now time.Time) v1alpha1.ClusterStatus {
	c.Phase, c.Reason, c.Message = v1alpha1.PhaseFailed, v.Reason, v.Message
	c.Attempts++
	c.Since, c.Next = nil, nil
	if s.isUsedUp(c.Attempts) {
		c.Message += fmt.Sprintf(" (after %d attempts; nothing more is tried until it is edited)", c.Attempts)
		return c
	}

	c.Next = stamp(now.Add(s.delay(c.Attempts)))
	return c
}

// stamp is a time as a status can hold it: in whole seconds.
func stamp(t time.Time) *metav1.Time {
	out := metav1.NewTime(t.Truncate(time.Second))
	return &out
}

// Summary is what the clusters of a Component add up to.
type Summary struct {
	Verdict
	Ready string // clusters that have it, of all
}

// Summarize adds them up. Those that are skipped are no obstacle.
func Summarize(clusters []v1alpha1.ClusterStatus) Summary {
	worst, have := -1, 0
	for i, c := range clusters {
		if c.Phase == v1alpha1.PhaseReady {
			have++
		}
		if worst < 0 || slices.Index(badness, c.Phase) < slices.Index(badness, clusters[worst].Phase) {
			worst = i
		}
	}
	if worst < 0 {
		return Summary{Verdict{
			v1alpha1.PhaseWaiting, ReasonNoCluster,
			"no cluster of this namespace is selected; check clusterSelector and the labels of Provisionings",
		}, "0/0"}
	}

	w := clusters[worst]
	s := Summary{Verdict{w.Phase, w.Reason, w.Message}, fmt.Sprintf("%d/%d", have, len(clusters))}
	switch {
	case w.Phase == v1alpha1.PhaseReady && len(clusters) > 1:
		s.Message = "installed and healthy on all clusters"
	case len(clusters) > 1:
		s.Message = "cluster " + w.Name + ": " + w.Message
	}

	return s
}
