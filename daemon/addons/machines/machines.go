// Package machines turns VirtualMachines and VirtualMachineInstances, a subset of KubeVirt's API, into pods that run
// QEMU (daemon/addons/machines/launcher). The controller remembers nothing but what is on the cluster.
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
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "firstlight.dev/firstlight/daemon/addons/machines/v1"
	"firstlight.dev/firstlight/daemon/engine/ctrlmanager"
)

// FieldManager is who writes.
const FieldManager = "firstlight-machines"

// problem is why there is no instance or no pod.
type problem struct{ reason, message string }

// Machines is the controller of VirtualMachines.
type Machines struct {
	Client   client.Client
	Recorder events.EventRecorder
	Now      func() time.Time
	Log      *slog.Logger
}

// Reconcile gives one machine the instance that its strategy asks for, or takes it away.
func (r *Machines) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	m := &v1.VirtualMachine{}
	if err := r.Client.Get(ctx, request.NamespacedName, m); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	i := &v1.VirtualMachineInstance{}
	if err := r.Client.Get(ctx, request.NamespacedName, i); apierrors.IsNotFound(err) {
		i = nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("read instance: %w", err)
	}

	before := m.DeepCopy()
	now := r.Now()
	if i != nil && i.Status.Phase == v1.Running {
		m.Status.StartFailure = nil
	}
	do, wait := Decide(m, i, now)
	wrong := checkMachine(m)
	var err error
	switch {
	case do == Refuse:
		wrong = &problem{v1.ReasonName, fmt.Sprintf(
			"VirtualMachineInstance %s exists and was not made by this machine; delete it or rename the machine", i.Name,
		)}
		i = nil
	case do == Record:
		m.Status.StartFailure = nextFailure(m, i, now)
		wait = time.Millisecond // it is deleted when that is written
	case do == Create && wrong == nil:
		i, wrong, err = r.create(ctx, m)
	case do == Delete:
		err = r.delete(ctx, m, i)
	}
	if err != nil {
		return reconcile.Result{}, err
	}

	DescribeMachine(m, i, wrong, now)
	return reconcile.Result{RequeueAfter: wait}, r.writeStatus(ctx, before, m, wrong)
}

// checkMachine is what is wrong with a machine's spec, whether it is to run or not.
func checkMachine(m *v1.VirtualMachine) *problem {
	var problems []string
	for _, u := range m.Spec.Unknown {
		problems = append(problems, "spec: "+u+": it is not in the subset of KubeVirt's API that this cluster has; take it out")
	}
	if m.Spec.Running != nil && m.Spec.RunStrategy != "" {
		problems = append(problems, "spec: running and runStrategy exclude each other; take one out")
	}
	for _, p := range CheckSpec(m.Spec.Template.Spec) {
		problems = append(problems, "spec.template.spec: "+p)
	}
	if len(problems) == 0 {
		return nil
	}
	return &problem{v1.ReasonRefused, sentence(problems)}
}

// newInstance is what a machine asks for now.
func newInstance(m *v1.VirtualMachine) *v1.VirtualMachineInstance {
	i := &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   m.Namespace,
			Name:        m.Name,
			Labels:      map[string]string{},
			Annotations: m.Spec.Template.Metadata.Annotations,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1.GroupVersion.String(),
				Kind:       "VirtualMachine",
				Name:       m.Name,
				UID:        m.UID,
				Controller: ptr.To(true),
			}},
		},
		Spec: *m.Spec.Template.Spec.DeepCopy(),
	}
	for name, value := range m.Spec.Template.Metadata.Labels {
		i.Labels[name] = value
	}
	i.Labels[v1.LabelMachine] = labelValue(m.Name)
	return i
}

func (r *Machines) create(ctx context.Context, m *v1.VirtualMachine) (*v1.VirtualMachineInstance, *problem, error) {
	i := newInstance(m)
	err := r.Client.Create(ctx, i, client.FieldOwner(FieldManager))
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		return nil, &problem{v1.ReasonRefused, err.Error()}, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("create instance: %w", err)
	}
	r.Log.Info("instance was created", "namespace", i.Namespace, "name", i.Name)
	return i, nil, nil
}

// delete deletes the very instance that was decided about. Its pod goes with it.
func (r *Machines) delete(ctx context.Context, m *v1.VirtualMachine, i *v1.VirtualMachineInstance) error {
	err := r.Client.Delete(ctx, i, client.Preconditions{UID: &i.UID},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete instance: %w", err)
	}
	r.Log.Info("instance was deleted", "namespace", i.Namespace, "name", i.Name, "strategy", m.Spec.Strategy(), "phase", i.Status.Phase)
	return nil
}

func (r *Machines) writeStatus(ctx context.Context, before, m *v1.VirtualMachine, wrong *problem) error {
	if equality.Semantic.DeepEqual(before.Status, m.Status) {
		return nil
	}
	err := r.Client.Status().Patch(ctx, m, client.MergeFrom(before), client.FieldOwner(FieldManager))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status: %w", err)
	}
	had := meta.FindStatusCondition(before.Status.Conditions, v1.ConditionFailure)
	if wrong != nil && (had == nil || had.Message != ctrlmanager.TruncateNote(wrong.message)) {
		r.Recorder.Eventf(
			m, nil, corev1.EventTypeWarning, wrong.reason, "Reconcile", "%s", ctrlmanager.TruncateNote(wrong.message),
		)
	}
	return nil
}
