package operator

import (
	"cmp"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

// rotationAsked passes on that a rotation is asked for.
func rotationAsked() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		const key = v1alpha1.AnnotationRotation
		return e.ObjectOld.GetAnnotations()[key] != e.ObjectNew.GetAnnotations()[key]
	}}
}

// dueRotation is the token of a rotation of the cluster's authorities for which there is something to do by now; "" is
// none. What the installer left says how far it is, and one that was begun is completed whoever asks for it no more.
func (w *clusterState) dueRotation() string {
	token := w.cr.Annotations[v1alpha1.AnnotationRotation]
	if w.virtlet || !w.rotation.IsDue(token, w.now, contract.RotationSettle) {
		return ""
	}
	return cmp.Or(token, w.rotation.Token)
}

// rotationText says of a cluster that is as asked how long its former authorities are trusted; "" if it has none.
func (w *clusterState) rotationText() string {
	if w.rotation.Stage != contract.RotationSigned {
		return ""
	}
	end := w.rotation.Signed.Add(contract.RotationSettle)
	return "; its authorities were replaced, and the former ones are trusted until " + end.UTC().Format(time.DateTime) +
		" UTC, for pods whose tokens are of before"
}
