package kpa

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/kpa/builtin"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/engine/apply"
)

// LabelFor is on a Component that a Provisioning's KUDPlugins asked for: the name of the Provisioning.
const LabelFor = "kpa.akraino.org/for"

// AddOns are what one Provisioning asks for and its installer does not have.
type AddOns struct {
	Namespace string
	Owner     metav1.OwnerReference // the Provisioning: its Components go with it
	Cluster   string
	Names     []string // in the order asked for
}

// order names before what each add-on of ICN can only run, if both are asked for: networks before what attaches to
// them, what labels nodes before what looks for labels, nodes that are drained for virtual functions before
// machines run on them, and what enforces isolation before tenants.
var order = map[string][]string{
	"ovn4nfv":               {"multus", "ovn"},
	"sriov":                 {"multus", "nfd"},
	"qat":                   {"nfd"},
	"optane":                {"nfd"},
	"cmk":                   {"nfd"},
	"cdi":                   {"sriov"},
	"virtlet":               {"multus", "ovn4nfv", "sriov", "qat"},
	"kubevirt":              {"multus", "ovn4nfv", "sriov", "qat", "cdi"},
	"service-chain":         {"multus"},
	"service-chain-ovn4nfv": {"ovn4nfv"},
	"tenants":               {"network-policy"},
	"virtual-machines":      {"multus", "ovn4nfv", "sriov", "qat"},
}

// known are the add-ons of ICN and of the stick. They run side by side but for their order; any other name waits for the one before it,
// as ICN's installer had it.
var known = []string{
	"cdi", "cmk", "istio", "kata", "kubevirt", "local-path-provisioner", "metrics-server", "multus", "network-policy", "nfd",
	"optane", "ovn", "ovn4nfv", "qat", "service-chain", "service-chain-ovn4nfv", "sriov", "tenants", "virtlet", "virtual-machines",
}

// orchestrators come after everything else that is known: they are told of what a cluster has.
var orchestrators = []string{"emco", "onap4k8s"}

// hardware is the label of a node that an add-on is for. Without one the add-on is skipped; it can only be told where
// nfd is asked for.
var hardware = map[string]map[string]string{
	"sriov": {"feature.node.kubernetes.io/network-sriov.capable": "true"},
	"qat":   {"feature.node.kubernetes.io/pci-0b40_8086.present": "true"},
}

// proofs are what holds on a cluster when an add-on does what it is for, if its objects do not show that themselves.
var proofs = map[string][]v1alpha1.HealthExpr{
	"metrics-server": {{
		APIVersion: "metrics.k8s.io/v1beta1",
		Kind:       "NodeMetrics",
		Expr:       `"memory" in self.usage`,
		Message:    "there are no metrics of nodes yet",
	}},
}

// dependencies names what of all an add-on comes after; all are in the order asked for.
func dependencies(name string, all []string) []string {
	i := slices.Index(all, name)
	switch {
	case slices.Contains(orchestrators, name):
		return keep(all, func(n string) bool { return slices.Contains(known, n) })
	case slices.Contains(known, name):
		return keep(all, func(n string) bool { return slices.Contains(order[name], n) })
	case i > 0:
		return all[i-1 : i]
	}
	return nil
}

func keep(all []string, fits func(string) bool) []string {
	return slices.DeleteFunc(slices.Clone(all), func(n string) bool { return !fits(n) })
}

// component is what an add-on asks for: the folder of its name, on its cluster.
func (a AddOns) component(name string, all []string) (*v1alpha1.Component, error) {
	c := &v1alpha1.Component{
		TypeMeta: typeMeta(v1alpha1.GroupVersion.String(), "Component"),
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       a.Namespace,
			Name:            a.Cluster + "-" + name,
			Labels:          map[string]string{LabelFor: a.Owner.Name},
			OwnerReferences: []metav1.OwnerReference{a.Owner},
		},
		Spec: v1alpha1.ComponentSpec{
			Clusters:   []string{a.Cluster},
			Source:     v1alpha1.Source{Folder: name},
			HealthExpr: proofs[name],
		},
	}
	job, err := builtin.ReadSelfTest(name)
	if err != nil {
		return nil, fmt.Errorf("read self test of %s: %w", name, err)
	}
	if job != nil {
		c.Spec.SelfTest = &v1alpha1.SelfTest{Job: runtime.RawExtension{Raw: job}}
	}
	for _, d := range dependencies(name, all) {
		c.Spec.DependsOn = append(c.Spec.DependsOn, v1alpha1.Dependency{
			Name:      a.Cluster + "-" + d,
			OrSkipped: hardware[d] != nil, // machines run on nodes without virtual functions, too
		})
	}
	if labels := hardware[name]; labels != nil && slices.Contains(all, "nfd") {
		c.Spec.Requires = &v1alpha1.Requires{NodeLabels: labels}
	}

	return c, nil
}

// components are those of all names. A name that no folder can have is left out; the Provisioning says that it is not
// on the stick.
func (a AddOns) components() (all []client.Object, err error) {
	names := keep(a.Names, func(n string) bool { return len(validation.IsDNS1123Subdomain(n)) == 0 })
	for i, n := range names {
		if slices.Contains(names[:i], n) {
			continue
		}

		c, err := a.component(n, names)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// RequestAddOns makes the Components that Provisionings ask for, and deletes those that none asks for any more. What
// somebody changed in one stays until its Provisioning asks for something else. While the API has no Components, it
// does nothing.
func (a Components) RequestAddOns(ctx context.Context, c client.Client, asked []AddOns) error {
	if !a.isServed {
		return nil
	}

	var failed []error
	wanted := map[client.ObjectKey]bool{}
	for _, one := range asked {
		objects, err := one.components()
		if err != nil {
			return err
		}
		set, err := apply.New(owner, objects...)
		if err != nil {
			return err
		}
		for _, o := range set.Objects {
			wanted[client.ObjectKeyFromObject(o)] = true
		}
		if set.Recheck(ctx, c) != nil {
			failed = append(failed, set.StaleSubset(ctx, c).Apply(ctx, c))
		}
	}

	for i := range a.all {
		k := &a.all[i]
		if k.Labels[LabelFor] == "" || wanted[client.ObjectKeyFromObject(k)] || !k.DeletionTimestamp.IsZero() {
			continue
		}

		o := &metav1.PartialObjectMetadata{
			TypeMeta:   typeMeta(v1alpha1.GroupVersion.String(), "Component"),
			ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name},
		}
		failed = append(failed, client.IgnoreNotFound(c.Delete(ctx, o, client.Preconditions{UID: &k.UID})))
	}

	return errors.Join(failed...)
}
