package metal3provider

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/daemon/clusters/metal3provider/choice"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

// Remediations reconciles Metal3Remediations: the host of an unhealthy Machine is switched off and on; if that does not
// help in time, its Machine is given up, and whoever owns it replaces it.
type Remediations struct{ *Provider }

type remediation = v1beta2.Metal3Remediation

const (
	// rebootPrefix is followed by the remediation's UID; the host stays off as long as it is there.
	rebootPrefix   = "reboot.metal3.io/metal3-remediation-"
	rebootHard     = `{"mode":"hard"}`
	unhealthyNode  = "capm3/UnhealthyNode" // value of choice.AnnotationUnhealthy
	indexPodOfNode = "spec.nodeName"
)

// ward is what a remediation is about.
type ward struct {
	owner *clusterv1.Machine
	host  *host
	api   client.Client // of its cluster; nil if it cannot be reached
	node  *corev1.Node  // nil if it is not known
}

// Reconcile makes one step, and writes the status last.
func (r *Remediations) Reconcile(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
	m := &remediation{}
	if err := r.Reader.Get(ctx, q.NamespacedName, m); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}

	before := m.DeepCopy()
	next, err := r.step(ctx, m)
	if err == nil && !reflect.DeepEqual(before.Status, m.Status) {
		base := m.DeepCopy()
		base.Status = before.Status
		err = client.IgnoreNotFound(r.Client.Status().Patch(ctx, m, client.MergeFrom(base)))
	}

	result := reconcile.Result{RequeueAfter: lookAgain}
	if next != remedyNone {
		result.RequeueAfter = time.Second // not all that it changed is watched
	}
	return afterRace(result, err)
}

// step makes the next step, and returns which one that was.
func (r *Remediations) step(ctx context.Context, m *remediation) (remedy, error) {
	w, paused, err := r.observe(ctx, m)
	if err != nil || paused {
		return remedyNone, err
	}
	if !m.DeletionTimestamp.IsZero() {
		return remedyNone, r.remove(ctx, m, w)
	}
	if w.owner == nil || w.host == nil {
		return remedyNone, nil // the Machine is watched by whoever made this
	}

	after, err := writeObject(ctx, r.Client, m, func(m *remediation) {
		controllerutil.AddFinalizer(m, v1beta2.RemediationFinalizer)
	})
	if err != nil {
		return remedyNone, err
	}
	m.ObjectMeta = after.ObjectMeta

	busy, err := w.isBusy(ctx)
	if err != nil {
		w.node = nil // the API of the cluster is away
	}

	next := nextRemedy(patient{
		status:    m.Status,
		strategy:  ptr.Deref(m.Spec.Strategy, v1beta2.RemediationStrategy{}),
		now:       r.Now(),
		wanted:    w.host.Spec.Online,
		powered:   w.host.Status.PoweredOn,
		held:      w.host.Annotations[rebootKey(m)] != "",
		reachable: w.node != nil,
		ready:     isNodeReady(w.node),
		tainted:   isOutOfService(w.node),
		busy:      busy,
	})
	return next, r.do(ctx, m, w, next)
}

// do makes a step true. Any may be repeated.
func (r *Remediations) do(ctx context.Context, m *remediation, w ward, next remedy) error {
	now := metav1.NewTime(r.Now())
	switch next {
	case remedyRefuse:
		m.Status.Phase = v1beta2.PhaseFailed
	case remedyBegin:
		m.Status.Phase, m.Status.LastRemediated = v1beta2.PhaseRunning, &now
	case remedyRetry:
		m.Status.Phase, m.Status.LastRemediated = v1beta2.PhaseRunning, &now
		m.Status.RetryCount++
	case remedyHold:
		return r.changeHost(ctx, w.host, func(h *host) { annotateHost(h, rebootKey(m), rebootHard) })
	case remedyLetGo:
		m.Status.Phase = v1beta2.PhaseWaiting
	case remedySwitch:
		return r.changeHost(ctx, w.host, func(h *host) { delete(h.Annotations, rebootKey(m)) })
	case remedyTaint, remedyUntaint:
		return w.setTaint(ctx, next == remedyTaint)
	case remedyGiveUp:
		return r.giveUp(ctx, m, w)
	}
	return nil
}

// giveUp has the owner of the Machine replace it, and keeps the host from being chosen again.
func (r *Remediations) giveUp(ctx context.Context, m *remediation, w ward) error {
	err := r.changeHost(ctx, w.host, func(h *host) {
		delete(h.Annotations, rebootKey(m))
		annotateHost(h, choice.AnnotationUnhealthy, unhealthyNode)
	})
	if err != nil {
		return err
	}

	before := w.owner.DeepCopy()
	meta.SetStatusCondition(&w.owner.Status.Conditions, metav1.Condition{
		Type:    clusterv1.MachineOwnerRemediatedCondition,
		Status:  metav1.ConditionFalse,
		Reason:  clusterv1.MachineOwnerRemediatedWaitingForRemediationReason,
		Message: fmt.Sprintf("host %s was switched off and on, and the Node did not become healthy", w.host.Name),
	})
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, w.owner, patch); err != nil {
		return fmt.Errorf("give up Machine %s: %w", w.owner.Name, err)
	}

	m.Status.Phase = v1beta2.PhaseDeleting
	return nil
}

// remove undoes what a remediation holds: the host may be on, and its Node in service.
func (r *Remediations) remove(ctx context.Context, m *remediation, w ward) error {
	if w.host != nil {
		err := r.changeHost(ctx, w.host, func(h *host) { delete(h.Annotations, rebootKey(m)) })
		if err != nil {
			return err
		}
	}
	if w.node != nil {
		if err := w.setTaint(ctx, false); client.IgnoreNotFound(err) != nil {
			return err
		}
	}

	_, err := writeObject(ctx, r.Client, m, func(m *remediation) {
		controllerutil.RemoveFinalizer(m, v1beta2.RemediationFinalizer)
	})
	return client.IgnoreNotFound(err)
}

// observe finds what a remediation is about. A host that is not its machine's any more is none.
func (r *Remediations) observe(ctx context.Context, m *remediation) (w ward, paused bool, err error) {
	owner := &clusterv1.Machine{}
	name := types.NamespacedName{Namespace: m.Namespace, Name: ownerName(m, "Machine")}
	if err := r.Reader.Get(ctx, name, owner); err != nil {
		return w, false, client.IgnoreNotFound(err)
	}

	w.owner = owner
	cluster, err := r.readCluster(ctx, m.Namespace, owner.Spec.ClusterName)
	if err != nil || isPaused(cluster, m) {
		return w, true, err
	}

	infra := &machine{}
	name.Name = owner.Spec.InfrastructureRef.Name
	err = r.Client.Get(ctx, name, infra)
	switch {
	case apierrors.IsNotFound(err):
		return w, false, nil
	case err != nil:
		return w, false, fmt.Errorf("read Metal3Machine %s: %w", name.Name, err)
	}

	h, err := r.readHost(ctx, m.Namespace, hostName(infra))
	if err != nil {
		return w, false, err
	}
	if h != nil && choice.IsConsumedBy(h, infra.Namespace, infra.Name) {
		w.host = h
	}

	if cluster != nil && owner.Status.NodeRef.Name != "" {
		w.api, w.node = r.findNode(ctx, key(cluster), owner.Status.NodeRef.Name)
	}
	return w, false, nil
}

// findNode is the Node of a Machine; nil if the API of its cluster does not answer: that may be what is to be mended.
func (r *Remediations) findNode(
	ctx context.Context, cluster types.NamespacedName, name string,
) (client.Client, *corev1.Node) {
	api, err := r.Workload(ctx, cluster)
	if err != nil {
		return nil, nil
	}

	n := &corev1.Node{}
	if err := api.Get(ctx, types.NamespacedName{Name: name}, n); err != nil {
		return nil, nil
	}
	return api, n
}

func (r *Remediations) changeHost(ctx context.Context, h *host, change func(*host)) error {
	_, err := r.writeHost(ctx, h, change)
	return err
}

func rebootKey(m *remediation) string { return rebootPrefix + string(m.UID) }

func annotateHost(h *host, key, value string) {
	if h.Annotations == nil {
		h.Annotations = map[string]string{}
	}
	h.Annotations[key] = value
}

// isBusy reports whether pods of the Node are still being deleted, or volumes attached to it.
func (w ward) isBusy(ctx context.Context) (bool, error) {
	if w.node == nil {
		return false, nil
	}
	if len(w.node.Status.VolumesAttached) > 0 {
		return true, nil
	}

	var pods corev1.PodList
	if err := w.api.List(ctx, &pods, client.MatchingFields{indexPodOfNode: w.node.Name}); err != nil {
		return false, fmt.Errorf("list pods of Node %s: %w", w.node.Name, err)
	}
	return slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }), nil
}

// setTaint takes the Node out of service, so that the cluster moves at once what runs on it, or into it.
func (w ward) setTaint(ctx context.Context, out bool) error {
	if isOutOfService(w.node) == out {
		return nil
	}

	_, err := writeObject(ctx, w.api, w.node, func(n *corev1.Node) {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, isOutOfServiceTaint)
		if out {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{
				Key:    corev1.TaintNodeOutOfService,
				Value:  "nodeshutdown",
				Effect: corev1.TaintEffectNoExecute,
			})
		}
	})
	return err
}

func isOutOfServiceTaint(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService }

func isOutOfService(n *corev1.Node) bool {
	return n != nil && slices.ContainsFunc(n.Spec.Taints, isOutOfServiceTaint)
}

func isNodeReady(n *corev1.Node) bool {
	return n != nil && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
