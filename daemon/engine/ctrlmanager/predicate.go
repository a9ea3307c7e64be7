package ctrlmanager

import (
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// IgnoreOwnWrites passes over what an operator itself writes, status and finalizers, unless one of others sees a change.
func IgnoreOwnWrites(others ...predicate.Predicate) predicate.Predicate {
	ending := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
	}}
	return predicate.Or(append(others, predicate.GenerationChangedPredicate{}, ending)...)
}
