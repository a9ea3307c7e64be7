package operator

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/ctrlmanager"
)

type host = metal3api.BareMetalHost

// Finalizer keeps a Provisioning that is deleted until its Job is ended and its hosts are
// released.
const Finalizer = "bpa.akraino.org/release"

// Provisionings takes every Provisioning one step nearer to what is asked, again and again.
type Provisionings struct {
	Config
	Client   client.Client // hosts and Provisionings from a cache
	Reader   client.Reader // the API server itself
	Recorder events.EventRecorder
	Logs     func(ctx context.Context, namespace, pod string) (io.ReadCloser, error)
	Now      func() time.Time
	Log      *slog.Logger

	authorized sync.Map // members that were seen to let their cluster's key in
}

// How long until a Provisioning is looked at again, if nothing that is watched changes: the
// installer's progress, leases and addresses are files.
const (
	lookRunning = 5 * time.Second
	lookWaiting = 15 * time.Second
	lookSettled = 5 * time.Minute
)

// Reconcile looks, decides, acts and tells, in this order.
func (r *Provisionings) Reconcile(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
	cr := &v1alpha1.Provisioning{}
	if err := r.Reader.Get(ctx, q.NamespacedName, cr); apierrors.IsNotFound(err) {
		return reconcile.Result{}, r.removeOrphans(ctx, q)
	} else if err != nil {
		return reconcile.Result{}, err
	}
	if !cr.DeletionTimestamp.IsZero() {
		return r.finalize(ctx, cr)
	}

	if !controllerutil.ContainsFinalizer(cr, Finalizer) {
		before := cr.DeepCopy()
		controllerutil.AddFinalizer(cr, Finalizer)
		if err := r.Client.Patch(
			ctx, cr, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}),
		); err != nil {
			return reconcile.Result{}, fmt.Errorf("add finalizer: %w", err)
		}
	}

	w, err := r.observe(ctx, cr)
	if err != nil {
		return reconcile.Result{}, r.reportError(ctx, cr, err)
	}

	a, err := r.resolve(ctx, w)
	if err != nil {
		return reconcile.Result{}, r.reportError(ctx, cr, err)
	}

	d := decide(w, a, a.want(r, w))
	progress := r.readProgress(w, d)
	if d.step == stepClear { // with the Job goes the number of its attempt
		if err := r.updateStatus(ctx, cr, describeStatus(w, a, d, progress), w.warnings()); err != nil {
			return reconcile.Result{}, err
		}
	}

	if err := r.act(ctx, w, &d); err != nil {
		return reconcile.Result{}, r.reportError(ctx, cr, err)
	}
	if err := r.updateStatus(ctx, cr, describeStatus(w, a, d, progress), w.warnings()); err != nil {
		return reconcile.Result{}, err
	}

	return requeueAfter(d, w.now), nil
}

// requeueAfter says when to look again.
func requeueAfter(d decision, now time.Time) reconcile.Result {
	switch d.step {
	case stepSettled:
		return reconcile.Result{RequeueAfter: lookSettled}
	case stepPause:
		return reconcile.Result{RequeueAfter: max(d.until.Sub(now), 10*time.Millisecond)}
	case stepHold, stepRefused:
		return reconcile.Result{RequeueAfter: lookWaiting}
	case stepWatch, stepStart:
		return reconcile.Result{RequeueAfter: lookRunning}
	}
	return reconcile.Result{RequeueAfter: 100 * time.Millisecond} // there is a next step already
}

// readProgress is what the installer says of itself while it runs, and said last when it failed.
func (r *Provisionings) readProgress(w *clusterState, d decision) contract.Progress {
	if d.step != stepWatch && d.step != stepPause && d.step != stepRefused {
		return contract.Progress{}
	}

	text, err := w.dir.read(contract.FileProgress)
	if err != nil {
		return contract.Progress{}
	}

	return contract.ReadProgress(text)
}

// finalize lets go of everything, in the order in which nothing is lost when it is interrupted: first
// the installer stops, last the hosts are free for others.
func (r *Provisionings) finalize(ctx context.Context, cr *v1alpha1.Provisioning) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(cr, Finalizer) {
		return reconcile.Result{}, nil
	}

	w, err := r.observe(ctx, cr)
	if err != nil {
		return reconcile.Result{}, r.reportError(ctx, cr, err)
	}

	status := cr.DeepCopy().Status
	status.Phase, status.Message = v1alpha1.PhaseDeleting, "ending the Job, then releasing the hosts; nothing on their disks is touched"
	if err := r.updateStatus(ctx, cr, status, nil); err != nil {
		return reconcile.Result{}, err
	}

	if w.nameOwner == "" {
		if err := r.fetchLog(ctx, w); err != nil {
			return reconcile.Result{}, err
		}

		gone, err := r.removeJob(ctx, w)
		if err != nil || !gone {
			return reconcile.Result{RequeueAfter: time.Second}, err
		}

		for _, o := range []client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: configMapName(w.cluster)}}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: kubeconfigName(w.cluster)}}} {
			o.SetNamespace(cr.Namespace)
			if err := r.deleteOwned(ctx, cr, o); err != nil {
				return reconcile.Result{}, err
			}
		}

		if err := r.deleteKey(ctx, w.cluster); err != nil {
			return reconcile.Result{}, err
		}
		if err := w.dir.removeFiles(); err != nil {
			return reconcile.Result{}, err
		}
	}

	for name, b := range w.bmh {
		if claimOf(b.Spec.ConsumerRef).Owner == w.owner {
			if err := r.patchHost(ctx, w, name, func(b *host) { b.Spec.ConsumerRef = nil }); err != nil {
				return reconcile.Result{}, err
			}
		}
	}

	before := cr.DeepCopy()
	controllerutil.RemoveFinalizer(cr, Finalizer)
	if err := r.Client.Patch(ctx, cr, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("remove finalizer: %w", err)
	}

	r.Log.Info("cluster given up", "provisioning", cr.Namespace+"/"+cr.Name, "cluster", w.cluster)
	return reconcile.Result{}, nil
}

// removeOrphans removes the Jobs of a Provisioning that was deleted without its finalizer, by whoever may do so: they
// are in another namespace, where nothing else would remove them.
func (r *Provisionings) removeOrphans(ctx context.Context, q reconcile.Request) error {
	var jobs batchv1.JobList
	if err := r.Reader.List(ctx, &jobs, client.InNamespace(r.Namespace)); err != nil {
		return fmt.Errorf("list Jobs: %w", err)
	}

	for i := range jobs.Items {
		job := &jobs.Items[i]
		if run, ours := kud.RunOf(job); !ours || run.Provisioning != q.String() {
			continue
		}

		err := r.Client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete Job: %w", err)
		}
		r.Log.Info("Job of no Provisioning removed", "job", job.Name, "provisioning", q.String())
	}

	return nil
}

// deleteOwned deletes an object if the Provisioning made it.
func (r *Provisionings) deleteOwned(ctx context.Context, cr *v1alpha1.Provisioning, o client.Object) error {
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !metav1.IsControlledBy(o, cr) {
		return nil
	}
	if err := r.Client.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s: %w", o.GetName(), err)
	}

	return nil
}

// updateStatus writes the status if it differs, and an Event if Ready says something new; of an edit, one for each
// warning as well.
func (r *Provisionings) updateStatus(
	ctx context.Context,
	cr *v1alpha1.Provisioning,
	status v1alpha1.ProvisioningStatus,
	warnings []warning,
) error {
	if sameStatus(cr.Status, status) {
		return nil
	}

	before := cr.DeepCopy()
	cr.Status = status
	if err := r.Client.Status().Patch(ctx, cr, client.MergeFrom(before)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write status: %w", err))
	}

	was, is := meta.FindStatusCondition(
		before.Status.Conditions, v1alpha1.ConditionReady,
	), meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if is == nil || was != nil && was.Reason == is.Reason && was.Message == is.Message {
		return nil
	}

	kind := corev1.EventTypeWarning
	switch status.Phase {
	case v1alpha1.PhaseReady, v1alpha1.PhaseInstalling, v1alpha1.PhaseChanging:
		kind = corev1.EventTypeNormal
	}

	r.Recorder.Eventf(cr, nil, kind, is.Reason, "Reconcile", "%s", ctrlmanager.TruncateNote(is.Message))
	if before.Status.ObservedGeneration == status.ObservedGeneration {
		return nil
	}

	for _, w := range warnings {
		note := ctrlmanager.TruncateNote(w.Sentence)
		r.Recorder.Eventf(cr, nil, corev1.EventTypeWarning, w.Reason, "Reconcile", "%s", note)
	}

	return nil
}

// reportError shows an error that is tried again, unless it is an ordinary race.
func (r *Provisionings) reportError(ctx context.Context, cr *v1alpha1.Provisioning, err error) error {
	if isRace(err) {
		return err
	}

	status := cr.DeepCopy().Status
	status.Message = "trying again: " + ctrlmanager.TruncateNote(err.Error())
	if telling := r.updateStatus(ctx, cr, status, nil); telling != nil {
		r.Log.Warn("status not written", "provisioning", cr.Name, "error", telling)
	}

	return err
}
