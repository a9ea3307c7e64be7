package metal3provider

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/daemon/clusters/metal3provider/choice"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

// Add adds the provider to a manager that has not started. Its controllers begin when the API server serves Cluster
// API's kinds and the provider's own, which is asked now and then; until then nothing is watched.
func Add(m manager.Manager, log *slog.Logger) error {
	if err := AddToScheme(m.GetScheme()); err != nil {
		return err
	}
	err := m.Add(manager.RunnableFunc(func(ctx context.Context) error { return start(ctx, m, log) }))
	if err != nil {
		return fmt.Errorf("add provider: %w", err)
	}
	return nil
}

// needed are kinds without which there is nothing to do.
var needed = []schema.GroupVersionKind{
	clusterv1.GroupVersion.WithKind("Cluster"),
	clusterv1.GroupVersion.WithKind("Machine"),
	ipamv1.GroupVersion.WithKind("IPAddressClaim"),
	v1alpha1.GroupVersion.WithKind("IPPool"),
	v1beta2.GroupVersion.WithKind("Metal3Cluster"),
	v1beta2.GroupVersion.WithKind("Metal3Machine"),
}

func start(ctx context.Context, m manager.Manager, log *slog.Logger) error {
	for !isServed(m.GetRESTMapper()) {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookAgain):
		}
	}

	log.Info("Cluster API is there: its infrastructure provider starts")
	workloads := &Workloads{Reader: m.GetAPIReader()}
	return addControllers(m, &Provider{
		Client:   m.GetClient(),
		Reader:   m.GetAPIReader(),
		Workload: workloads.Client,
		Now:      time.Now,
		Log:      log,
	})
}

func isServed(mapper meta.RESTMapper) bool {
	for _, kind := range needed {
		if _, err := mapper.RESTMapping(kind.GroupKind(), kind.Version); err != nil {
			return false
		}
	}
	return true
}

func addControllers(m manager.Manager, p *Provider) error {
	err := builder.ControllerManagedBy(m).Named("metal3cluster").
		For(&v1beta2.Metal3Cluster{}).
		Owns(&ipamv1.IPAddressClaim{}).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(infraOfCluster)).
		Complete(&Clusters{p})
	if err != nil {
		return fmt.Errorf("make controller of Metal3Clusters: %w", err)
	}

	machines := &Machines{p}
	err = builder.ControllerManagedBy(m).Named("metal3machine").
		For(&v1beta2.Metal3Machine{}).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(infraOfMachine)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(machines.ofCluster)).
		Watches(&v1beta2.Metal3Cluster{}, handler.EnqueueRequestsFromMapFunc(machines.ofCluster)).
		Watches(&host{}, handler.EnqueueRequestsFromMapFunc(machines.ofHost)).
		Watches(&v1beta2.Metal3DataClaim{}, handler.EnqueueRequestsFromMapFunc(sameName)).
		Watches(&v1beta2.Metal3Data{}, handler.EnqueueRequestsFromMapFunc(machineOfData)).
		// Each may wait for the API of a cluster that does not answer; machines of others do not wait for that.
		WithOptions(controller.Options{MaxConcurrentReconciles: 16}).Complete(machines)
	if err != nil {
		return fmt.Errorf("make controller of Metal3Machines: %w", err)
	}

	err = builder.ControllerManagedBy(m).Named("metal3remediation").
		For(&v1beta2.Metal3Remediation{}).
		Watches(&host{}, handler.EnqueueRequestsFromMapFunc(remediationOfHost)).
		Complete(&Remediations{p})
	if err != nil {
		return fmt.Errorf("make controller of Metal3Remediations: %w", err)
	}

	return addDataControllers(m, p)
}

func addDataControllers(m manager.Manager, p *Provider) error {
	err := builder.ControllerManagedBy(m).Named("metal3datatemplate").
		For(&v1beta2.Metal3DataTemplate{}).
		Watches(&v1beta2.Metal3DataClaim{}, handler.EnqueueRequestsFromMapFunc(templateOf)).
		Watches(&v1beta2.Metal3Data{}, handler.EnqueueRequestsFromMapFunc(templateOf)).
		Complete(&Templates{p})
	if err != nil {
		return fmt.Errorf("make controller of Metal3DataTemplates: %w", err)
	}

	err = builder.ControllerManagedBy(m).Named("metal3data").
		For(&v1beta2.Metal3Data{}).
		Owns(&ipamv1.IPAddressClaim{}).
		Complete(&Datas{p})
	if err != nil {
		return fmt.Errorf("make controller of Metal3Data: %w", err)
	}

	err = builder.ControllerManagedBy(m).Named("ippool").
		For(&v1alpha1.IPPool{}).
		Watches(&ipamv1.IPAddressClaim{}, handler.EnqueueRequestsFromMapFunc(poolOf)).
		Complete(&Pools{p})
	if err != nil {
		return fmt.Errorf("make controller of IPPools: %w", err)
	}

	return nil
}

// templateOf is the template that a claim or data is of.
func templateOf(_ context.Context, o client.Object) []reconcile.Request {
	switch o := o.(type) {
	case *v1beta2.Metal3DataClaim:
		return request(o.Namespace, o.Spec.Template.Name)
	case *v1beta2.Metal3Data:
		return request(o.Namespace, o.Spec.Template.Name)
	}
	return nil
}

// remediationOfHost is the one of the machine that has a host: it is called as the machine.
func remediationOfHost(_ context.Context, o client.Object) []reconcile.Request {
	h, ok := o.(*host)
	if !ok || !choice.IsMachineRef(h.Spec.ConsumerRef) {
		return nil
	}
	return request(h.Namespace, h.Spec.ConsumerRef.Name)
}

// poolOf is the IPPool that a claim asks.
func poolOf(_ context.Context, o client.Object) []reconcile.Request {
	c, ok := o.(*ipamv1.IPAddressClaim)
	if !ok || !isOfPool(c.Spec.PoolRef, c.Spec.PoolRef.Name) {
		return nil
	}
	return request(c.Namespace, c.Spec.PoolRef.Name)
}

// infraOfCluster is the Metal3Cluster of a Cluster.
func infraOfCluster(_ context.Context, o client.Object) []reconcile.Request {
	c, ok := o.(*clusterv1.Cluster)
	if !ok || c.Spec.InfrastructureRef.Kind != "Metal3Cluster" {
		return nil
	}
	return request(c.Namespace, c.Spec.InfrastructureRef.Name)
}

// infraOfMachine is the Metal3Machine of a Machine.
func infraOfMachine(_ context.Context, o client.Object) []reconcile.Request {
	m, ok := o.(*clusterv1.Machine)
	if !ok || m.Spec.InfrastructureRef.Kind != "Metal3Machine" {
		return nil
	}
	return request(m.Namespace, m.Spec.InfrastructureRef.Name)
}

// ofCluster are the Metal3Machines of a Cluster, or of a Metal3Cluster.
func (r *Machines) ofCluster(ctx context.Context, o client.Object) []reconcile.Request {
	name := o.GetName()
	if _, infra := o.(*v1beta2.Metal3Cluster); infra {
		name = o.GetLabels()[clusterv1.ClusterNameLabel]
	}
	return r.list(ctx, o.GetNamespace(), func(m *machine) bool { return m.Labels[clusterv1.ClusterNameLabel] == name })
}

// ofHost is the Metal3Machine that has a host; of a host that anybody may have, those that have none.
func (r *Machines) ofHost(ctx context.Context, o client.Object) []reconcile.Request {
	h, ok := o.(*host)
	if !ok {
		return nil
	}
	if c := h.Spec.ConsumerRef; choice.IsMachineRef(c) {
		return request(h.Namespace, c.Name)
	}
	if choice.CheckCondition(h) != nil {
		return r.list(ctx, h.Namespace, func(m *machine) bool { return hostName(m) == h.Name })
	}
	return r.list(ctx, h.Namespace, func(m *machine) bool { return hostName(m) == "" || hostName(m) == h.Name })
}

func (r *Machines) list(ctx context.Context, namespace string, concerns func(*machine) bool) []reconcile.Request {
	var all v1beta2.Metal3MachineList
	if err := r.Client.List(ctx, &all, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		r.Log.Error("Metal3Machines not listed", "error", err)
		return nil
	}
	var out []reconcile.Request
	for i := range all.Items {
		if concerns(&all.Items[i]) {
			out = append(out, request(namespace, all.Items[i].Name)...)
		}
	}
	return out
}

// sameName is the object of the same name.
func sameName(_ context.Context, o client.Object) []reconcile.Request {
	return request(o.GetNamespace(), o.GetName())
}

// machineOfData is the Metal3Machine that data is for: its claim is called as it.
func machineOfData(_ context.Context, o client.Object) []reconcile.Request {
	d, ok := o.(*v1beta2.Metal3Data)
	if !ok {
		return nil
	}
	return request(d.Namespace, d.Spec.Claim.Name)
}

func request(namespace, name string) []reconcile.Request {
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}
