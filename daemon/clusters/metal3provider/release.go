package metal3provider

import (
	"context"
	"fmt"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/choice"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

// noImage is the value of label.AllowWipe by which the owner of a host in service lets it be emptied.
const noImage = "none"

// remove gives up a machine's data, then its host, and last the machine. It needs none of the objects around it.
func (r *Machines) remove(ctx context.Context, m *machine, s surroundings) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(m, v1beta2.MachineFinalizer) {
		return reconcile.Result{}, nil
	}

	r.set(m, verdict{Type: v1beta2.ConditionMetaData, Reason: v1beta2.ReasonDeleting})
	if err := r.removeClaim(ctx, m); err != nil {
		return reconcile.Result{}, err
	}
	m.Status.RenderedData = nil
	m.Status.MetaData, m.Status.NetworkData = m.Spec.MetaData.DeepCopy(), m.Spec.NetworkData.DeepCopy()

	if name := hostName(m); name != "" {
		h, err := r.readHost(ctx, m.Namespace, name)
		if err != nil {
			return reconcile.Result{}, err
		}
		if h != nil && choice.IsConsumedBy(h, m.Namespace, m.Name) {
			released, err := r.release(ctx, m, s, h)
			if err != nil || !released {
				return reconcile.Result{RequeueAfter: lookAgain}, err
			}
		}
	}

	r.unreserve(key(m))
	err := r.write(ctx, m, func(m *machine) { controllerutil.RemoveFinalizer(m, v1beta2.MachineFinalizer) })
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return reconcile.Result{}, err
}

// release takes a host out of service and lets go of it, one write at a time. The claim goes last: until then nobody
// else may have the host.
func (r *Machines) release(ctx context.Context, m *machine, s surroundings, h *host) (bool, error) {
	cluster := clusterName(m, s.machine)
	if !isEmpty(h) {
		return false, r.emptyHost(ctx, m, h)
	}
	if !isDeprovisioned(h) {
		r.set(m, verdict{
			Type:    v1beta2.ConditionHostProvisioned,
			Reason:  v1beta2.ReasonDeleting,
			Message: fmt.Sprintf("host %s is %s", h.Name, h.Status.Provisioning.State),
		})
		return false, nil
	}

	keep, err := r.isKept(ctx, m, s)
	if err != nil {
		return false, err
	}
	_, err = r.writeHost(ctx, h, func(h *host) {
		unclaim(h, cluster)
		clearAnnotations(h)
		if keep {
			keepFor(h, reuseLabel(s.machine), s.cluster)
		}
	})
	if err != nil {
		return false, err
	}

	r.Log.Info("host released", "host", h.Name, "machine", m.Namespace+"/"+m.Name)
	return true, nil
}

// emptyHost takes the image from a host. Deleting a Machine says that its host goes out of service, so the consent that
// the API server asks for before is the owner's; it says nothing of what is on the disk, which stays.
func (r *Machines) emptyHost(ctx context.Context, m *machine, h *host) error {
	r.set(m, verdict{
		Type:    v1beta2.ConditionHostProvisioned,
		Reason:  v1beta2.ReasonDeleting,
		Message: fmt.Sprintf("host %s is being taken out of service", h.Name),
	})

	if isInService(h) && h.Annotations[label.AllowWipe] != noImage {
		var err error
		h, err = r.writeHost(ctx, h, func(h *host) {
			if h.Annotations == nil {
				h.Annotations = map[string]string{}
			}
			h.Annotations[label.AllowWipe] = noImage
		})
		if err != nil {
			return err
		}
	}

	_, err := r.writeHost(ctx, h, empty)
	return err
}

func isInService(h *host) bool {
	state := h.Status.Provisioning.State
	return state == metal3api.StateProvisioned || state == metal3api.StateExternallyProvisioned
}

// clearAnnotations takes off a released host what was said for its last machine. It is inspected again: what its disk
// holds now is not what was seen before, and whoever has it next is asked about that.
func clearAnnotations(h *host) {
	for _, a := range []string{label.AllowWipe, label.Cleared, label.Wanted, label.Why, annotationBlockMove} {
		delete(h.Annotations, a)
	}
	if h.Annotations[metal3api.PausedAnnotation] == pausedByProvider {
		delete(h.Annotations, metal3api.PausedAnnotation)
	}
	if h.Annotations == nil {
		h.Annotations = map[string]string{}
	}
	h.Annotations[metal3api.InspectAnnotationPrefix] = ""
}

// confirm says that a machine has its host, also after it was interrupted before it could say so.
func (r *Machines) confirm(m *machine) {
	r.set(m, verdict{Type: v1beta2.ConditionAssociate, Holds: true, Reason: associatedReason(m)})
}

// associatedReason keeps how a machine got its host.
func associatedReason(m *machine) string {
	for _, c := range m.Status.Conditions {
		if c.Type == v1beta2.ConditionAssociate && c.Reason == v1beta2.ReasonAssociatedByReuse {
			return c.Reason
		}
	}
	return v1beta2.ReasonAssociated
}
