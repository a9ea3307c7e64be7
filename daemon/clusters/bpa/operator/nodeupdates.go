package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/nodeupdate"
	"firstlight.dev/firstlight/daemon/clusters/bpa/software"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/engine/ctrlmanager"
)

// NodeUpdates takes the nodes of clusters one step nearer to what NodeUpdates ask for, again and again. What was begun
// is seen on the nodes: what is remembered here only spares them questions.
type NodeUpdates struct {
	Config
	Client   client.Client
	Reader   client.Reader
	Recorder events.EventRecorder
	Now      func() time.Time
	Connect  func(kubeconfig []byte) (Workload, error) // to the API of a cluster

	clusters sync.Map // *sync.Mutex by name: one NodeUpdate of a cluster is looked at at a time
	asked    sync.Map // askedFacts by cluster/node
	refusals sync.Map // of evictions: a sentence by cluster/node
}

// OpenFinalizer keeps a NodeUpdate that is deleted until no node is out of service for it.
const OpenFinalizer = "bpa.akraino.org/open-nodes"

// Reasons of a NodeUpdate, besides those of package nodeupdate.
const (
	InvalidUpdate = "InvalidUpdate"
	ClusterSilent = "ClusterSilent"
)

// How long until a NodeUpdate is looked at again.
const (
	lookUpdating = 3 * time.Second
	factsTime    = 15 * time.Minute // how long what a node in service said is believed
	silenceTime  = time.Minute
)

// nodeUpdate is one NodeUpdate that is looked at.
type nodeUpdate struct {
	*v1alpha1.NodeUpdate
	cluster  string
	packages []software.Package
	opens    time.Time // when nodes may be taken out of service
	record   *kud.InstalledCluster
	p        *v1alpha1.Provisioning // that installed the cluster
	now      time.Time
	was      v1alpha1.NodeUpdateStatus
	status   v1alpha1.NodeUpdateStatus // to be written
}

// Reconcile looks, decides, acts and tells, in this order.
func (r *NodeUpdates) Reconcile(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
	o := &v1alpha1.NodeUpdate{}
	if err := r.Reader.Get(ctx, q.NamespacedName, o); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}

	lock, _ := r.clusters.LoadOrStore(v1alpha1.ClusterOf(o), &sync.Mutex{})
	if mutex := lock.(*sync.Mutex); mutex.TryLock() {
		defer mutex.Unlock()
	} else {
		return reconcile.Result{RequeueAfter: lookUpdating}, nil
	}

	u, err := r.read(ctx, o)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case !o.DeletionTimestamp.IsZero():
		return r.finalizeUpdate(ctx, u)
	case !controllerutil.ContainsFinalizer(o, OpenFinalizer):
		before := o.DeepCopy()
		controllerutil.AddFinalizer(o, OpenFinalizer)
		lock := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := r.Client.Patch(ctx, o, lock); err != nil {
			return reconcile.Result{}, fmt.Errorf("add finalizer: %w", err)
		}
	}

	if err := u.check(r.Now()); err != nil {
		return r.finish(ctx, u, v1alpha1.PhaseRefused, InvalidUpdate, err.Error(), 0)
	}
	if u.p == nil {
		text := notInstalledSentence(u.cluster, u.Namespace)
		return r.finish(ctx, u, v1alpha1.PhaseWaiting, ClusterNotInstalled, text, lookSettled)
	}
	if next := u.was.Next; next != nil && u.isSameSpec() && r.Now().Before(next.Time) {
		return reconcile.Result{RequeueAfter: next.Sub(r.Now())}, nil
	}
	return r.update(ctx, u)
}

// read reads what belongs to a NodeUpdate.
func (r *NodeUpdates) read(ctx context.Context, o *v1alpha1.NodeUpdate) (*nodeUpdate, error) {
	u := &nodeUpdate{NodeUpdate: o, cluster: v1alpha1.ClusterOf(o), now: r.Now(), was: o.DeepCopy().Status}
	u.status = v1alpha1.NodeUpdateStatus{
		ObservedGeneration: o.Generation,
		Cluster:            u.cluster,
		Conditions:         slices.Clone(o.Status.Conditions),
		Nodes:              o.DeepCopy().Status.Nodes,
		NodesReady:         o.Status.NodesReady,
	}

	record, err := r.clusterDir(u.cluster).readInstalled()
	if err != nil || record == nil {
		return u, err
	}
	in, name, _ := strings.Cut(record.Provisioning, "/")
	if in != o.Namespace { // what somebody writes into a namespace says nothing about the nodes of another one
		return u, nil
	}

	p := &v1alpha1.Provisioning{}
	if err := r.Reader.Get(ctx, client.ObjectKey{Namespace: in, Name: name}, p); err != nil {
		return u, client.IgnoreNotFound(err)
	}
	u.record, u.p = record, p
	return u, nil
}

// check reads what is asked for.
func (u *nodeUpdate) check(now time.Time) error {
	packages, err := software.List("packages", u.Spec.Packages)
	if err != nil {
		return err
	}
	if u.packages, err = software.Merge(packages); err != nil {
		return err
	}
	if u.record != nil && u.record.Virtlet {
		return errors.New("the nodes of this cluster are virtual machines; update their image")
	}

	u.opens = now
	if w := u.Spec.Window; w != nil {
		u.opens, err = nodeupdate.Opens(*w, now)
	}
	return err
}

// isSameSpec reports whether the status is about what is asked for now.
func (u *nodeUpdate) isSameSpec() bool { return u.was.ObservedGeneration == u.Generation }

// token is this generation, as nodes have it that were updated by it.
func (u *nodeUpdate) token() string { return fmt.Sprintf("%s/%d", u.UID, u.Generation) }

// hold is why no further node is taken out of service.
func (u *nodeUpdate) hold(now time.Time) *nodeupdate.Hold {
	switch phase := u.p.Status.Phase; {
	case u.Spec.Paused:
		return &nodeupdate.Hold{Reason: nodeupdate.ReasonPaused, Sentence: "paused by spec.paused"}
	case u.opens.After(now):
		return &nodeupdate.Hold{
			Reason:   nodeupdate.ReasonOutsideWindow,
			Sentence: "its window opens at " + u.opens.Format("Mon 2006-01-02 15:04 UTC"),
		}
	case phase == v1alpha1.PhaseInstalling || phase == v1alpha1.PhaseChanging || phase == v1alpha1.PhaseDeleting:
		return &nodeupdate.Hold{
			Reason:   nodeupdate.ReasonChanging,
			Sentence: fmt.Sprintf("Provisioning %s is %s; this follows", u.p.Name, phase),
		}
	}
	return nil
}

// order is what package nodeupdate is asked about.
func (r *NodeUpdates) order(ctx context.Context, u *nodeUpdate, minor int) (nodeupdate.Order, error) {
	o := nodeupdate.Order{
		UID:            string(u.UID),
		Token:          u.token(),
		Reboot:         u.Spec.Reboot,
		MaxUnavailable: int(u.Spec.MaxUnavailable),
		Hold:           u.hold(r.Now()),
		Others:         map[string]bool{},
		Minor:          minor,
	}

	var all v1alpha1.NodeUpdateList
	if err := r.Reader.List(ctx, &all, client.InNamespace(u.Namespace)); err != nil {
		return o, fmt.Errorf("list NodeUpdates: %w", err)
	}
	for i := range all.Items {
		if other := &all.Items[i]; other.UID != u.UID && v1alpha1.ClusterOf(other) == u.cluster {
			o.Others[string(other.UID)] = true
		}
	}
	return o, nil
}

// update takes the nodes of an installed cluster one step further.
func (r *NodeUpdates) update(ctx context.Context, u *nodeUpdate) (reconcile.Result, error) {
	s, err := r.open(ctx, u)
	if err != nil {
		return reconcile.Result{}, err
	}
	defer s.close()
	if s.fault != nil {
		return r.finish(ctx, u, v1alpha1.PhaseWaiting, s.fault.Reason, s.fault.Sentence, lookWaiting)
	}

	nodes, err := s.observe(ctx)
	if err != nil {
		return r.finish(ctx, u, v1alpha1.PhaseWaiting, ClusterSilent, silentSentence(u.cluster, err), lookWaiting)
	}
	order, err := r.order(ctx, u, s.api.Minor)
	if err != nil {
		return reconcile.Result{}, err
	}

	d := nodeupdate.Decide(order, nodes, r.Now())
	u.describe(nodes, d)
	if u.was.Phase != v1alpha1.PhaseFailed || !u.isSameSpec() || d.Phase == v1alpha1.PhaseReady {
		// One that failed stays so until a step succeeds: that it is tried again is no news.
		if _, err := r.finish(ctx, u, d.Phase, d.Reason, d.Message, 0); err != nil {
			return reconcile.Result{}, err
		}
	}

	acted := s.act(ctx, nodes, &d)
	if ctx.Err() != nil {
		return reconcile.Result{}, ctx.Err()
	}
	d.Conclude()
	u.describe(nodes, d)
	return r.conclude(ctx, u, d, acted)
}

// conclude writes the status after the steps, and says when to look again.
func (r *NodeUpdates) conclude(
	ctx context.Context, u *nodeUpdate, d nodeupdate.Decision, acted bool,
) (reconcile.Result, error) {
	wait := lookWaiting
	switch {
	case d.Phase == v1alpha1.PhaseFailed:
		u.status.Attempt = 1
		if u.isSameSpec() {
			u.status.Attempt = u.was.Attempt + 1
		}
		wait = kud.RetryDelay(u.status.Attempt)
		u.status.Next = &metav1.Time{Time: r.Now().Add(wait)}
	case acted:
		wait = 100 * time.Millisecond
	case d.Phase == v1alpha1.PhaseUpdating:
		wait = lookUpdating
	case d.Phase == v1alpha1.PhaseReady:
		wait = lookSettled
	case u.opens.After(r.Now()):
		wait = min(u.opens.Sub(r.Now()), lookSettled)
	}
	return r.finish(ctx, u, d.Phase, d.Reason, d.Message, wait)
}

// finish writes the status, with its Events.
func (r *NodeUpdates) finish(
	ctx context.Context, u *nodeUpdate, phase, reason, message string, wait time.Duration,
) (reconcile.Result, error) {
	u.status.Phase, u.status.Message = phase, excerpt.Line(message)
	meta.SetStatusCondition(
		&u.status.Conditions, readyCondition(u.Generation, phase == v1alpha1.PhaseReady, reason, u.status.Message),
	)
	result := reconcile.Result{RequeueAfter: wait}
	if equality.Semantic.DeepEqual(u.Status, u.status) {
		return result, nil
	}

	before := u.NodeUpdate.DeepCopy()
	u.Status = (&v1alpha1.NodeUpdate{Status: u.status}).DeepCopy().Status
	if err := r.Client.Status().Patch(ctx, u.NodeUpdate, client.MergeFrom(before)); err != nil {
		return result, client.IgnoreNotFound(fmt.Errorf("write status: %w", err))
	}
	r.addEvents(u.NodeUpdate, before.Status)
	return result, nil
}

// addEvents tells what is new: how a node stands, and how all do.
func (r *NodeUpdates) addEvents(o *v1alpha1.NodeUpdate, before v1alpha1.NodeUpdateStatus) {
	phases := map[string]string{}
	for _, n := range before.Nodes {
		phases[n.Name] = n.Phase
	}
	for _, n := range o.Status.Nodes {
		if n.Phase == phases[n.Name] || n.Phase == v1alpha1.NodeUpdateFailed || n.Phase == v1alpha1.NodeUnknown {
			continue // the whole fails with it
		}
		note := ctrlmanager.TruncateNote(strings.TrimSuffix("node "+n.Name+": "+n.Message, ": "))
		r.Recorder.Eventf(o, nil, corev1.EventTypeNormal, n.Phase, "Reconcile", "%s", note)
	}

	was := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionReady)
	is := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady)
	isSame := was != nil && was.Reason == is.Reason
	if isSame && (o.Status.Phase != v1alpha1.PhaseFailed || was.Message == is.Message) {
		return
	}
	kind := corev1.EventTypeWarning
	switch o.Status.Phase {
	case v1alpha1.PhaseReady, v1alpha1.PhaseUpdating, v1alpha1.PhaseWaiting:
		kind = corev1.EventTypeNormal
	}
	r.Recorder.Eventf(o, nil, kind, is.Reason, "Reconcile", "%s", ctrlmanager.TruncateNote(is.Message))
}

// finalizeUpdate puts the nodes back into service that are out of it for a NodeUpdate that is deleted.
func (r *NodeUpdates) finalizeUpdate(ctx context.Context, u *nodeUpdate) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(u, OpenFinalizer) {
		return reconcile.Result{}, nil
	}
	if u.p != nil && u.p.DeletionTimestamp.IsZero() {
		if err := r.openNodes(ctx, u); err != nil {
			return r.finish(ctx, u, v1alpha1.PhaseDeleting, ClusterSilent, silentSentence(u.cluster, err), lookWaiting)
		}
	}

	before := u.NodeUpdate.DeepCopy()
	controllerutil.RemoveFinalizer(u.NodeUpdate, OpenFinalizer)
	if err := r.Client.Patch(ctx, u.NodeUpdate, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("remove finalizer: %w", err)
	}
	return reconcile.Result{}, nil
}

func silentSentence(cluster string, err error) string {
	return fmt.Sprintf("the API of cluster %s does not answer: %v; nodes stay as they are until it does", cluster, err)
}
