package machines

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/daemon/addons/machines/launcher"
	v1 "firstlight.dev/firstlight/daemon/addons/machines/v1"
	"firstlight.dev/firstlight/daemon/engine/ctrlmanager"
)

// Instances is the controller of VirtualMachineInstances.
type Instances struct {
	Client   client.Client
	Reader   client.Reader // without a cache
	Recorder events.EventRecorder
	Image    string // of launchers
	Log      *slog.Logger
}

// checkInterval is the time between two checks of what is not watched.
const checkInterval = 10 * time.Second

// Reconcile gives one instance its pod, once, and says what becomes of it. Its deletion is the garbage collector's.
func (r *Instances) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	i := &v1.VirtualMachineInstance{}
	if err := r.Client.Get(ctx, request.NamespacedName, i); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if i.Status.Phase.IsFinal() {
		return reconcile.Result{}, nil
	}
	pod, wrong, err := r.findPod(ctx, i)
	if err != nil {
		return reconcile.Result{}, err
	}
	if pod == nil && wrong == nil && !hadPod(i) && i.DeletionTimestamp.IsZero() {
		pod, wrong, err = r.createPod(ctx, i)
	}
	if err != nil {
		return reconcile.Result{}, err
	}

	before := i.DeepCopy()
	o := Observe(i, pod)
	result := reconcile.Result{}
	if wrong != nil {
		o = observation{v1.Pending, wrong.reason, wrong.message}
		result.RequeueAfter = checkInterval // claims, quotas and pods of others are not watched
	}
	Describe(i, pod, o)
	return result, r.writeStatus(ctx, before, i, o)
}

// findPod is the instance's pod; nil if there is none. What the cache does not have is asked of the API before it is
// called gone.
func (r *Instances) findPod(ctx context.Context, i *v1.VirtualMachineInstance) (*corev1.Pod, *problem, error) {
	key := client.ObjectKey{Namespace: i.Namespace, Name: PodName(i)}
	pod := &corev1.Pod{}
	err := r.Client.Get(ctx, key, pod)
	if apierrors.IsNotFound(err) {
		err = r.Reader.Get(ctx, key, pod)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("read pod %s: %w", key.Name, err)
	case !metav1.IsControlledBy(pod, i):
		return nil, &problem{v1.ReasonName, fmt.Sprintf("pod %s exists and is somebody else's; delete it", key.Name)}, nil
	}
	return pod, nil, nil
}

func (r *Instances) createPod(ctx context.Context, i *v1.VirtualMachineInstance) (*corev1.Pod, *problem, error) {
	if problems := CheckSpec(i.Spec); len(problems) > 0 {
		return nil, &problem{v1.ReasonRefused, "spec: " + sentence(problems)}, nil
	}
	wrong, err := r.checkPredecessor(ctx, i)
	if wrong != nil || err != nil {
		return nil, wrong, err
	}
	claims, wrong, err := r.readClaims(ctx, i)
	if wrong != nil || err != nil {
		return nil, wrong, err
	}
	with, err := r.chooseAccelerator(ctx, i)
	if err != nil {
		return nil, nil, err
	}

	pod, err := RenderPod(i, r.Image, claims, with)
	if err != nil {
		return nil, nil, err
	}
	err = r.Client.Create(ctx, pod, client.FieldOwner(FieldManager))
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		return nil, &problem{v1.ReasonRefused, "its pod is refused: " + err.Error()}, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("create pod %s: %w", pod.Name, err)
	}
	r.Log.Info("pod was created", "namespace", pod.Namespace, "name", pod.Name, "accelerator", with)
	return pod, nil, nil
}

// checkPredecessor finds a pod of an earlier instance of the name: a disk is used by one QEMU at a time.
func (r *Instances) checkPredecessor(ctx context.Context, i *v1.VirtualMachineInstance) (*problem, error) {
	var pods corev1.PodList
	err := r.Reader.List(ctx, &pods, client.InNamespace(i.Namespace), client.MatchingLabels{
		v1.LabelApp: v1.AppLauncher, v1.LabelMachine: labelValue(i.Name),
	})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	for _, p := range pods.Items {
		owner := metav1.GetControllerOf(&p)
		if owner == nil || owner.Name != i.Name || owner.UID == i.UID {
			continue
		}
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			return &problem{v1.ReasonPredecessor, fmt.Sprintf("pod %s of an earlier machine of this name has not ended", p.Name)}, nil
		}
	}
	return nil, nil
}

// readClaims are the sizes of the claims.
func (r *Instances) readClaims(ctx context.Context, i *v1.VirtualMachineInstance) (claimSizes, *problem, error) {
	sizes := claimSizes{}
	for _, v := range i.Spec.Volumes {
		name := claimName(v)
		if name == "" {
			continue
		}
		var claim corev1.PersistentVolumeClaim
		err := r.Reader.Get(ctx, client.ObjectKey{Namespace: i.Namespace, Name: name}, &claim)
		if apierrors.IsNotFound(err) {
			return nil, &problem{v1.ReasonClaim, fmt.Sprintf("PersistentVolumeClaim %s does not exist; create it", name)}, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read claim %s: %w", name, err)
		}
		if mode := claim.Spec.VolumeMode; mode != nil && *mode == corev1.PersistentVolumeBlock {
			return nil, &problem{v1.ReasonClaim, fmt.Sprintf(
				"PersistentVolumeClaim %s is a block device; use one with volumeMode: Filesystem", name,
			)}, nil
		}

		size := claim.Spec.Resources.Requests.Storage()
		if have, ok := claim.Status.Capacity[corev1.ResourceStorage]; ok {
			size = &have
		}
		sizes[v.Name] = size.Value()
	}
	return sizes, nil, nil
}

// chooseAccelerator is KVM if any node that the instance may be on offers it.
func (r *Instances) chooseAccelerator(ctx context.Context, i *v1.VirtualMachineInstance) (launcher.Accelerator, error) {
	var nodes corev1.NodeList
	err := r.Reader.List(ctx, &nodes, client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(i.Spec.NodeSelector)})
	if err != nil {
		return "", fmt.Errorf("list nodes: %w", err)
	}
	for _, n := range nodes.Items {
		if q, ok := n.Status.Allocatable[KVMResource]; ok && !q.IsZero() && !n.Spec.Unschedulable {
			return launcher.KVM, nil
		}
	}
	return launcher.TCG, nil
}

// writeStatus says what there is. What becomes of the instance is an Event as well.
func (r *Instances) writeStatus(ctx context.Context, before, i *v1.VirtualMachineInstance, o observation) error {
	if equality.Semantic.DeepEqual(before.Status, i.Status) {
		return nil
	}
	err := r.Client.Status().Patch(ctx, i, client.MergeFrom(before), client.FieldOwner(FieldManager))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status: %w", err)
	}

	had := meta.FindStatusCondition(before.Status.Conditions, v1.ConditionReady)
	if had != nil && had.Reason == o.reason && before.Status.Phase == i.Status.Phase {
		return nil
	}
	kind := corev1.EventTypeWarning
	switch o.reason {
	case v1.ReasonReady, v1.ReasonStarting, v1.ReasonEnded, v1.ReasonTerminating, v1.ReasonPredecessor:
		kind = corev1.EventTypeNormal
	}
	r.Recorder.Eventf(i, nil, kind, o.reason, "Reconcile", "%s", ctrlmanager.TruncateNote(o.message))
	return nil
}
