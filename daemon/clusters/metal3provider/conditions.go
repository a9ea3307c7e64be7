package metal3provider

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

// verdict is one condition before it is written.
type verdict struct {
	Type    string
	Holds   bool
	Reason  string
	Message string
}

// setCondition puts a verdict among conditions.
func setCondition(all *[]metav1.Condition, generation int64, v verdict) {
	status := metav1.ConditionFalse
	if v.Holds {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(all, metav1.Condition{
		Type:               v.Type,
		Status:             status,
		Reason:             v.Reason,
		Message:            truncate(v.Message),
		ObservedGeneration: generation,
	})
}

// truncate fits a message into a condition, 32768 characters by its schema; people read much less.
func truncate(s string) string { return excerpt.Start(s, 2000) }

// summarize sets Ready: it repeats the first of the given types that does not hold.
func summarize(all *[]metav1.Condition, generation int64, types ...string) {
	ready := verdict{Type: v1beta2.ConditionReady, Holds: true, Reason: v1beta2.ReasonReady}
	for _, t := range types {
		c := meta.FindStatusCondition(*all, t)
		if c == nil || c.Status == metav1.ConditionTrue {
			continue
		}
		ready = verdict{Type: v1beta2.ConditionReady, Reason: v1beta2.ReasonNotReady, Message: c.Reason}
		if c.Message != "" {
			ready.Message += ": " + c.Message
		}
		break
	}
	setCondition(all, generation, ready)
}

// pausedVerdict is the condition Paused.
func pausedVerdict(paused bool) verdict {
	if paused {
		return verdict{Type: v1beta2.ConditionPaused, Holds: true, Reason: v1beta2.ReasonPaused}
	}
	return verdict{Type: v1beta2.ConditionPaused, Reason: v1beta2.ReasonNotPaused}
}
