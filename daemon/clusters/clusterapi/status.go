package clusterapi

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

// Clusters are the clusters of Cluster API as they stood when they were read, with their machines.
type Clusters struct {
	clusters []clusterv1.Cluster
	machines []clusterv1.Machine
}

// ReadClusters reads the clusters, and if there are any their machines; none while the API server does not know Clusters.
func ReadClusters(ctx context.Context, api client.Reader) (all Clusters, err error) {
	all.clusters, err = list[clusterv1.Cluster](ctx, api, "Cluster")
	if err != nil || len(all.clusters) == 0 {
		return Clusters{}, err
	}
	all.machines, err = list[clusterv1.Machine](ctx, api, "Machine")
	return all, err
}

// Status is how each of them stands, for the appliance's status. site are the Clusters as the site asks for them.
func (s Clusters) Status(hosts []metal3api.BareMetalHost, site []client.Object) []status.Cluster {
	var all []status.Cluster
	for i := range s.clusters {
		c := &s.clusters[i]
		var of []clusterv1.Machine
		for _, m := range s.machines {
			if m.Namespace == c.Namespace && m.Spec.ClusterName == c.Name {
				of = append(of, m)
			}
		}
		one := describe(c, of, hosts)
		for _, o := range site {
			if want, err := readCluster(o); err == nil && want.Namespace == c.Namespace && want.Name == c.Name {
				one.Warnings = keptDifferences(want, c)
			}
		}
		all = append(all, one)
	}
	return all
}

// list reads all objects of one of Cluster API's kinds in the namespace of hosts.
func list[T any](ctx context.Context, api client.Reader, kind string) ([]T, error) {
	found := &unstructured.UnstructuredList{}
	found.SetGroupVersionKind(newObject(kind + "List").GroupVersionKind())
	err := api.List(ctx, found, client.InNamespace(Infrastructure().Namespace))
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %ss: %w", kind, err)
	}

	all := make([]T, len(found.Items))
	for i := range found.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Items[i].Object, &all[i]); err != nil {
			return nil, fmt.Errorf("read %s %s: %w", kind, found.Items[i].GetName(), err)
		}
	}
	return all, nil
}

// describe says how a cluster stands. It is pure.
func describe(c *clusterv1.Cluster, machines []clusterv1.Machine, hosts []metal3api.BareMetalHost) status.Cluster {
	s := status.Cluster{Name: c.Name, Namespace: c.Namespace, Kind: status.KindCluster}
	running, claimed := 0, 0
	for i := range machines {
		n := describeMachine(&machines[i], hosts)
		if n.State == status.ClusterReady {
			running++
		}
		if n.Host != "" {
			claimed++
		}
		s.Members = append(s.Members, n)
	}
	slices.SortFunc(s.Members, func(a, b status.ClusterNode) int {
		return cmp.Or(cmp.Compare(a.Roles[0], b.Roles[0]), cmp.Compare(a.Name, b.Name))
	})

	wanted := max(replicas(c), len(machines))
	s.Nodes = fmt.Sprintf("%d/%d", running, wanted)
	if wanted > 0 {
		s.Percent = 100 * running / wanted
	}

	v := readVerification(c)
	s.Checks, s.Checked = listChecks(v)
	topology := meta.FindStatusCondition(c.Status.Conditions, clusterv1.ClusterTopologyReconciledCondition)
	switch {
	case !c.DeletionTimestamp.IsZero():
		s.State, s.Text = status.ClusterDeleting, "its machines give their hosts back"
	case topology != nil && topology.Status == metav1.ConditionFalse &&
		topology.Reason == clusterv1.ClusterTopologyReconciledFailedReason:
		s.State, s.Error = status.ClusterFailed, firstItem(topology.Message)
	case claimed+running == 0:
		s.State, s.Text = status.ClusterWaiting, cmp.Or(firstReason(s.Members), conditionText(c, clusterv1.ClusterInfrastructureReadyCondition),
			"Cluster API has made no machine of it yet")
	case running < wanted:
		s.State, s.Text = status.ClusterInstalling, cmp.Or(firstReason(s.Members), "its machines become nodes, one of the control plane at a time")
	case v == nil || !reflect.DeepEqual(v.Nodes, nodesOf(c, machines)):
		s.State, s.Text = status.ClusterInstalling, "all nodes are there; its pods, Services and DNS are being verified"
	case !v.Passed:
		s.State, s.Error = status.ClusterFailed, "its verification did not pass, and is repeated: "+verificationText(v)
	default:
		s.State = status.ClusterReady
		s.Text = fmt.Sprintf("cluster %s is there and verified; kubeconfig: Secret %s-kubeconfig in namespace %s", c.Name, c.Name, c.Namespace)
	}
	return s
}

// listChecks are those of a verification, and when that was; none of nil.
func listChecks(v *contract.Verification) (all []status.Check, at time.Time) {
	if v == nil {
		return nil, time.Time{}
	}
	for _, c := range v.Checks {
		s := status.Check{Name: c.Name, State: status.CheckFailed, Text: c.Message}
		if c.Passed {
			s.State = status.CheckOK
		}
		all = append(all, s)
	}
	return all, v.Time
}

// replicas is how many machines a topology asks for; 0 for a cluster without one.
func replicas(c *clusterv1.Cluster) int { return int(controlPlanes(c) + workers(c)) }

// describeMachine says how a machine stands, by the name of its node once it is one.
func describeMachine(m *clusterv1.Machine, hosts []metal3api.BareMetalHost) status.ClusterNode {
	n := status.ClusterNode{
		Name:  cmp.Or(m.Status.NodeRef.Name, m.Name),
		Roles: []string{label.RoleWorker},
		State: status.ClusterInstalling,
	}
	if _, ok := m.Labels[clusterv1.MachineControlPlaneLabel]; ok {
		n.Roles = []string{label.RoleControlPlane}
	}

	for i := range hosts {
		h := &hosts[i]
		if c := h.Spec.ConsumerRef; c != nil && c.Kind == "Metal3Machine" && c.Name == m.Spec.InfrastructureRef.Name {
			n.Host = h.Namespace + "/" + h.Name
		}
	}
	if m.Status.NodeInfo != nil {
		n.Version = m.Status.NodeInfo.KubeletVersion
	}
	for _, a := range m.Status.Addresses {
		if a.Type == clusterv1.MachineInternalIP && n.Address == "" {
			n.Address = a.Address
		}
	}

	ready := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineReadyCondition)
	switch {
	case !m.DeletionTimestamp.IsZero():
		n.State = status.ClusterDeleting
	case m.Status.Phase == string(clusterv1.MachinePhaseRunning) && ready != nil && ready.Status == metav1.ConditionTrue:
		n.State = status.ClusterReady
		return n
	case n.Host == "":
		n.State = status.ClusterWaiting
	}
	if ready != nil && ready.Status != metav1.ConditionTrue {
		n.Reason = firstItem(ready.Message)
	}
	return n
}

// firstReason is why the first node that says so is not further.
func firstReason(all []status.ClusterNode) string {
	for _, n := range all {
		if n.State != status.ClusterReady && n.Reason != "" {
			return n.Name + ": " + n.Reason
		}
	}
	return ""
}

func conditionText(c *clusterv1.Cluster, kind string) string {
	if found := meta.FindStatusCondition(c.Status.Conditions, kind); found != nil && found.Status != metav1.ConditionTrue {
		return firstItem(found.Message)
	}
	return ""
}

// firstItem is the first item of a summary of Cluster API, on one line. Each item is "* TYPE: MESSAGE"; one with several
// messages has each on a line of its own below, indented, "  * MESSAGE".
func firstItem(message string) string {
	var first []string
	for i, line := range strings.Split(strings.TrimSpace(message), "\n") {
		if i > 0 && strings.HasPrefix(line, "* ") {
			break
		}
		first = append(first, strings.TrimPrefix(strings.TrimSpace(line), "* "))
	}

	head, below := first[0], strings.Join(first[1:], "; ")
	return strings.TrimSpace(head + " " + below)
}
