package clusterapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/excerpt"
)

// keepInstalled leaves clusters that are there as they were created, but that they may grow: another version, image, key
// or network would install their nodes again, and of fewer machines nobody says which go. That is up to their owners.
func keepInstalled(ctx context.Context, api client.Reader, all []client.Object) error {
	for _, o := range all {
		want := o.(*unstructured.Unstructured)
		have := newObject("Cluster")
		err := api.Get(ctx, client.ObjectKeyFromObject(want), have)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read Cluster %s: %w", want.GetName(), err)
		}
		if err := keepCluster(want, have); err != nil {
			return fmt.Errorf("Cluster %s: %w", want.GetName(), err)
		}
	}
	return nil
}

func keepCluster(want, have *unstructured.Unstructured) error {
	if !usesClass(have) {
		return errors.New("somebody applied one of that name that is not of the appliance's class; give the site's another name")
	}

	for _, path := range [][]string{
		{"spec", "clusterNetwork"}, {"spec", "topology", "version"}, {"spec", "topology", "variables"},
	} {
		value, found, err := unstructured.NestedFieldCopy(have.Object, path...)
		if err != nil || !found {
			return fmt.Errorf("it has no %s", strings.Join(path, "."))
		}
		if err := unstructured.SetNestedField(want.Object, value, path...); err != nil {
			return err
		}
	}

	n, _, _ := unstructured.NestedInt64(have.Object, "spec", "topology", "controlPlane", "replicas")
	if err := grow(want.Object, n, "spec", "topology", "controlPlane"); err != nil {
		return err
	}

	workers, _, _ := unstructured.NestedSlice(have.Object, "spec", "topology", "workers", "machineDeployments")
	wanted, _, _ := unstructured.NestedSlice(want.Object, "spec", "topology", "workers", "machineDeployments")
	if len(wanted) == 0 && len(workers) > 0 {
		return unstructured.SetNestedSlice(want.Object, workers, "spec", "topology", "workers", "machineDeployments")
	}
	for _, w := range workers {
		w, ok := w.(map[string]any)
		if !ok || len(wanted) == 0 || w["name"] != wanted[0].(map[string]any)["name"] {
			continue
		}
		n, _, _ := unstructured.NestedInt64(w, "replicas")
		if err := grow(wanted[0].(map[string]any), n); err != nil {
			return err
		}
		return unstructured.SetNestedSlice(want.Object, wanted, "spec", "topology", "workers", "machineDeployments")
	}

	return nil
}

// grow has at least so many replicas.
func grow(object map[string]any, least int64, path ...string) error {
	path = append(path, "replicas")
	n, _, err := unstructured.NestedInt64(object, path...)
	if err != nil {
		return err
	}
	return unstructured.SetNestedField(object, max(n, least), path...)
}

// keptDifferences are what a site asks of a cluster that is there otherwise and stays so, one sentence each with what to
// do. The version and the content of an image are the stick's, and say nothing of what the owner wants.
func keptDifferences(want, have *clusterv1.Cluster) (all []string) {
	for _, d := range []struct {
		line string
		of   func(*clusterv1.Cluster) string
	}{
		{"endpoint", func(c *clusterv1.Cluster) string { return topologyVariable(c, "endpoint", "host") }},
		{"podCIDR", func(c *clusterv1.Cluster) string { return strings.Join(c.Spec.ClusterNetwork.Pods.CIDRBlocks, ",") }},
		{"serviceCIDR", func(c *clusterv1.Cluster) string { return strings.Join(c.Spec.ClusterNetwork.Services.CIDRBlocks, ",") }},
		{"os of its nodes", func(c *clusterv1.Cluster) string { return topologyVariable(c, "image", "url") }},
		{"access.sshKeys", func(c *clusterv1.Cluster) string { return topologyVariable(c, "sshKeys", "") }},
	} {
		if w, h := d.of(want), d.of(have); w != h {
			all = append(all, fmt.Sprintf("site.yaml: %s: it is %s there, and this cluster keeps %s, because its nodes would be "+
				"installed again; edit the Cluster if they are to be, or give the line back", d.line, shorten(w), shorten(h)))
		}
	}

	for _, d := range []struct {
		line       string
		want, have int32
	}{
		{"controlPlane", controlPlanes(want), controlPlanes(have)},
		{"workers", workers(want), workers(have)},
	} {
		if d.want < d.have {
			all = append(all, fmt.Sprintf("site.yaml: %s: it names %d there, and this cluster keeps %d, because nobody says which go; "+
				"scale the Cluster down", d.line, d.want, d.have))
		}
	}
	return all
}

// topologyVariable is a field of the value of a variable, or all of it, "" if there is none.
func topologyVariable(c *clusterv1.Cluster, name, field string) string {
	for _, v := range c.Spec.Topology.Variables {
		if v.Name != name {
			continue
		}

		var fields map[string]any
		if field != "" && json.Unmarshal(v.Value.Raw, &fields) == nil {
			return fmt.Sprint(fields[field])
		}
		return string(v.Value.Raw)
	}
	return ""
}

func controlPlanes(c *clusterv1.Cluster) int32 {
	return ptr.Deref(c.Spec.Topology.ControlPlane.Replicas, 0)
}

func workers(c *clusterv1.Cluster) (n int32) {
	for _, w := range c.Spec.Topology.Workers.MachineDeployments {
		n += ptr.Deref(w.Replicas, 0)
	}
	return n
}

// shorten is a value in a sentence.
func shorten(value string) string { return cmp.Or(excerpt.Start(value, 60), "nothing") }

// readCluster reads a Cluster of the site's as Cluster API's own type.
func readCluster(cluster client.Object) (*clusterv1.Cluster, error) {
	u, ok := cluster.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("%T is no Cluster", cluster)
	}
	c := &clusterv1.Cluster{}
	return c, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, c)
}
