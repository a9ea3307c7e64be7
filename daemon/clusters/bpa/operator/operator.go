// Package operator is the Binary Provisioning Agent: the controllers of Provisioning, Software
// and NodeUpdate, and the proposal of clusters for a rack that asks for none. Each looks at the
// world, decides by the pure functions of its sibling packages, and acts; docs/bpa.md walks
// through it. Nothing is remembered: what was done is seen by looking.
package operator

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/engine/ctrlmanager"
)

// Config is what the operator is told.
type Config struct {
	Namespace string   // the operator's own: Jobs are there, and the clusters' log-ins to their nodes
	Agent     string   // socket of an SSH agent with the appliance's log-in to nodes; "": there is none
	Dir       string   // of clusters, contract.Dir
	LeaseFile string   // of ISC's format; may be missing
	Installer string   // image, for Provisionings that name none
	Allowed   []string // images that Provisionings may name
	AddOns    []string // that the stick has as Components; a cluster is installed without other plugins
	SSHPort   uint16   // of nodes; 22 if zero

	Site     string // its name: that of proposed clusters
	Proposal string // ProposalOff, ProposalShow or ProposalApply

	Beside func(manager.Manager) error // adds what else runs in this process; nil: nothing

	Place func(*corev1.PodSpec) // says where the pods of Jobs run; nil: anywhere

	Elect   bool   // wait until no other operator runs
	Metrics string // address; "0" for none
	Health  string // address; "0" for none
}

// Scheme knows every kind that the operator reads or writes.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	kinds := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, metal3api.AddToScheme, v1alpha1.AddToScheme)
	return s, kinds.AddToScheme(s)
}

// Run runs all controllers until ctx ends.
func Run(ctx context.Context, api *rest.Config, c Config, log *slog.Logger) error {
	scheme, err := Scheme()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return fmt.Errorf("make directory of clusters: %w", err)
	}

	named, err := labels.NewRequirement(kud.LabelCluster, selection.Exists, nil)
	if err != nil {
		return err
	}

	ofCluster := cache.ByObject{Label: labels.NewSelector().Add(*named)}
	m, err := ctrlmanager.New(api, ctrlmanager.Options{
		Name:      FieldManager,
		Namespace: c.Namespace,
		Elect:     c.Elect,
		Metrics:   c.Metrics,
		Health:    c.Health,
		Scheme:    scheme,
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&metal3api.BareMetalHost{}: {Transform: trimForCache},
			&batchv1.Job{}: {
				Label:      ofCluster.Label,
				Namespaces: map[string]cache.Config{c.Namespace: {}},
			},
			&corev1.ConfigMap{}: ofCluster,
		}},
	}, log)
	if err != nil {
		return err
	}

	set, err := kubernetes.NewForConfig(api)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}

	logs := func(ctx context.Context, namespace, pod string) (io.ReadCloser, error) {
		return set.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{}).Stream(ctx)
	}
	p := &Provisionings{
		Config:   c,
		Client:   m.GetClient(),
		Reader:   m.GetAPIReader(),
		Recorder: m.GetEventRecorder(FieldManager),
		Logs:     logs,
		Now:      time.Now,
		Log:      log,
	}
	s := &Softwares{
		Config:   c,
		Client:   p.Client,
		Reader:   p.Reader,
		Recorder: p.Recorder,
		Now:      time.Now,
	}
	asked := ctrlmanager.IgnoreOwnWrites(predicate.LabelChangedPredicate{})
	err = builder.ControllerManagedBy(m).Named("provisioning").
		For(&v1alpha1.Provisioning{}, builder.WithPredicates(predicate.Or(asked, rotationAsked()))).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(provisioningOf)).
		Watches(
			&metal3api.BareMetalHost{}, handler.EnqueueRequestsFromMapFunc(p.affectedProvisionings),
			builder.WithPredicates(factChanged()),
		).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).Complete(p)
	if err != nil {
		return fmt.Errorf("make controller: %w", err)
	}

	err = builder.ControllerManagedBy(m).Named("software").
		For(&v1alpha1.Software{}, builder.WithPredicates(asked)).
		Watches(
			&v1alpha1.Provisioning{}, handler.EnqueueRequestsFromMapFunc(mapToCluster(s.Client, &v1alpha1.SoftwareList{})),
			builder.WithPredicates(nodesChanged()),
		).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8}).Complete(s)
	if err != nil {
		return fmt.Errorf("make controller: %w", err)
	}

	u := &NodeUpdates{
		Config:   c,
		Client:   p.Client,
		Reader:   p.Reader,
		Recorder: p.Recorder,
		Now:      time.Now,
		Connect:  ConnectWorkload,
	}
	err = builder.ControllerManagedBy(m).Named("nodeupdate").
		For(&v1alpha1.NodeUpdate{}, builder.WithPredicates(asked)).
		Watches(
			&v1alpha1.Provisioning{}, handler.EnqueueRequestsFromMapFunc(mapToCluster(u.Client, &v1alpha1.NodeUpdateList{})),
			builder.WithPredicates(nodesChanged()),
		).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8}).Complete(u)
	if err != nil {
		return fmt.Errorf("make controller: %w", err)
	}
	if err := m.Add(manager.RunnableFunc((&Proposals{
		Config: c,
		Client: p.Client,
		Reader: p.Reader,
		Now:    time.Now,
		Log:    log,
	}).Run)); err != nil {
		return fmt.Errorf("add proposals: %w", err)
	}
	if c.Beside != nil {
		if err := c.Beside(m); err != nil {
			return err
		}
	}
	return m.Start(ctx)
}

// trimForCache keeps of a host what is looked at: a thousand hosts with their disks, firmware and
// history would be most of the operator's memory.
func trimForCache(o any) (any, error) {
	b, ok := o.(*metal3api.BareMetalHost)
	if !ok {
		return o, nil
	}

	b.ManagedFields = nil
	delete(b.Annotations, corev1.LastAppliedConfigAnnotation)
	provision := b.Status.OperationHistory.Provision
	b.Status = metal3api.BareMetalHostStatus{
		OperationalStatus: b.Status.OperationalStatus,
		ErrorMessage:      b.Status.ErrorMessage,
		HardwareDetails:   b.Status.HardwareDetails,
		Provisioning:      metal3api.ProvisionStatus{State: b.Status.Provisioning.State},
	}
	b.Status.OperationHistory.Provision = provision
	if d := b.Status.HardwareDetails; d != nil {
		d.Storage, d.Firmware, d.SystemVendor = nil, metal3api.Firmware{}, metal3api.HardwareSystemVendor{}
		d.CPU = metal3api.CPU{Count: d.CPU.Count}
		for i := range d.NIC {
			d.NIC[i].VLANs = nil
		}
	}

	return b, nil
}

// nodesChanged passes over changes of Provisionings that leave their nodes as they were.
func nodesChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, ok1 := e.ObjectOld.(*v1alpha1.Provisioning)
		now, ok2 := e.ObjectNew.(*v1alpha1.Provisioning)
		return !ok1 || !ok2 || old.Status.Phase != now.Status.Phase || old.Status.NodesReady != now.Status.NodesReady
	}}
}

// factChanged passes over changes of hosts that matching does not see.
func factChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, ok1 := e.ObjectOld.(*metal3api.BareMetalHost)
		now, ok2 := e.ObjectNew.(*metal3api.BareMetalHost)
		return !ok1 || !ok2 || !reflect.DeepEqual(
			hostFacts(old), hostFacts(now),
		) || !reflect.DeepEqual(old.Status.HardwareDetails, now.Status.HardwareDetails)
	}}
}

// affectedProvisionings are the Provisionings that a host may matter to: its own, and all that wait.
func (r *Provisionings) affectedProvisionings(ctx context.Context, o client.Object) []reconcile.Request {
	var all v1alpha1.ProvisioningList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		r.Log.Error("Provisionings not listed", "error", err)
		return nil
	}

	b, ok := o.(*metal3api.BareMetalHost)
	if !ok {
		return nil
	}

	owner := claimOf(b.Spec.ConsumerRef).Owner
	var out []reconcile.Request
	for i := range all.Items {
		p := &all.Items[i]
		if p.Status.Phase != v1alpha1.PhaseReady || ownerName(p.Namespace, p.Name) == owner {
			out = append(
				out, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}},
			)
		}
	}

	return out
}

// provisioningOf is the Provisioning that a Job was made for.
func provisioningOf(_ context.Context, o client.Object) []reconcile.Request {
	job, ok := o.(*batchv1.Job)
	if !ok {
		return nil
	}

	run, ours := kud.RunOf(job)
	namespace, name, named := strings.Cut(run.Provisioning, "/")
	if !ours || !named {
		return nil
	}

	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}

// isRace tells errors that only say that somebody else was quicker: all is looked at again.
func isRace(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// readyCondition is the condition Ready.
func readyCondition(generation int64, ok bool, reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if ok {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{
		Type:               v1alpha1.ConditionReady,
		Status:             status,
		Reason:             reason,
		Message:            message,
		ObservedGeneration: generation,
	}
}
