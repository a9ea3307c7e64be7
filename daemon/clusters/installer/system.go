package installer

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// stages are the cluster's own way, beside those of its nodes.
func (c *cluster) stages() []bringup.Stage {
	return []bringup.Stage{
		{Name: "api-answers", Title: "The cluster's API starts",
			Fact: "an API server of the cluster answers the appliance",
			Why:  "Everything below is asked of it.",
			Done: func(ctx context.Context) error {
				if _, err := c.connect(ctx); err != nil {
					return bringup.Wait("the control plane of %s", c.firstControlPlane().Label)
				}
				return nil
			}},
		{Name: "kubeconfig-kept", Title: "The kubeconfig is made",
			Fact: "the kubeconfig that the operator hands out works, and no earlier one does",
			Why:  "As early as it works: whoever wants to see what holds the rest up needs it.",
			Done: c.kubeconfigDone, Do: c.kubeconfigDo},
		{Name: "system-applied", Title: "Network and names are set up",
			Fact: "the pods' network and the name server are as wanted",
			Why:  "Before the nodes are Ready: it is what makes them so.",
			Done: c.systemDone, Do: c.systemDo},
		{Name: "nodes-ready", Title: "Nodes become ready",
			Fact: "every node of the inventory is Ready, with its roles",
			Why:  "Before the verification, which wants all of them.",
			Done: c.nodesDone, Do: c.nodesDo},
		{
			Name:  "system-running",
			Title: "Kubernetes' network and names start",
			Fact:  "kube-proxy, the network and the name server are ready, on every node that has them",
			Why:   "Before whatever relies on Services and names.",
			Done:  c.runningDone,
		},
		{
			Name:    "cluster-verified",
			Title:   "The cluster is verified",
			Fact:    "a pod on every node reaches pods of the others, a Service and a name",
			Why:     "Last: it proves what the stages before only set up.",
			Done:    c.verifyDone,
			Do:      c.verifyDo,
			Recheck: time.Hour,
		},
	}
}

func (c *cluster) systemObjects() (apply.Set, error) {
	f := c.firstControlPlane().facts()
	if f.CPUs == 0 { // it was not looked at in this run: without its name servers the cluster's would know no names but its own
		return apply.Set{}, bringup.Wait("%s to say which name servers it uses", c.firstControlPlane().Label)
	}

	nameservers := f.Nameservers[:min(len(f.Nameservers), 3)]
	text, err := systemManifest(newValues(c.Settings, c.inv), nameservers, min(2, len(c.inv.Nodes)))
	if err != nil {
		return apply.Set{}, bringup.Permanent(err)
	}

	return apply.Read("firstlight-installer", text)
}

func (c *cluster) systemDone(ctx context.Context) error {
	set, err := c.systemObjects()
	if err != nil {
		return err
	}

	a, err := c.connect(ctx)
	if err != nil {
		return err
	}

	return set.CheckCurrent(ctx, a.client)
}

func (c *cluster) systemDo(ctx context.Context, _ bringup.Report) error {
	set, err := c.systemObjects()
	if err != nil {
		return err
	}

	a, err := c.connect(ctx)
	if err != nil {
		return err
	}

	return set.Apply(ctx, a.client)
}

const (
	controlPlaneRole = "node-role.kubernetes.io/control-plane"
	workerRole       = "node-role.kubernetes.io/worker"
)

// rolePatch is what must change on a node object so that it has the roles of the inventory; nil if nothing.
func rolePatch(object *corev1.Node, controlPlane, worker bool) []byte {
	_, isWorker := object.Labels[workerRole]
	tainted := slices.ContainsFunc(object.Spec.Taints, func(t corev1.Taint) bool { return t.Key == controlPlaneRole })
	if isWorker == worker && tainted == (controlPlane && !worker) {
		return nil
	}

	label := any("")
	if !worker {
		label = nil
	}

	taints := slices.DeleteFunc(
		slices.Clone(object.Spec.Taints), func(t corev1.Taint) bool { return t.Key == controlPlaneRole },
	)
	if controlPlane && !worker {
		taints = append(taints, corev1.Taint{Key: controlPlaneRole, Effect: corev1.TaintEffectNoSchedule})
	}

	text, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"labels":          map[string]any{workerRole: label},
			"resourceVersion": object.ResourceVersion,
		},
		"spec": map[string]any{"taints": taints},
	})
	if err != nil {
		return nil // of these types never
	}

	return text
}

// nodesVerdict says of every node of the inventory that is not as it should be why. A node that is missing
// holds up nobody's roles.
func nodesVerdict(want []*node, have []corev1.Node) error {
	var wrong []string
	for _, n := range want {
		i := slices.IndexFunc(have, func(o corev1.Node) bool { return o.Name == n.Label })
		switch {
		case i < 0:
			wrong = append(wrong, n.Label+" has not joined")
		case rolePatch(&have[i], n.ControlPlane, n.Worker) != nil:
			return fmt.Errorf("%s does not have its roles", n.Label)
		case readyCondition(&have[i]) != corev1.ConditionTrue:
			wrong = append(wrong, n.Label+" is not Ready: "+notReady(&have[i]))
		}
	}

	if len(wrong) > 0 {
		return bringup.Wait("%s", strings.Join(wrong, "; "))
	}

	return nil
}

// readyNodes are the labels of the nodes of the inventory that are Ready and have their roles, in its order.
func readyNodes(want []*node, have []corev1.Node) (labels []string) {
	for _, n := range want {
		if nodesVerdict([]*node{n}, have) == nil {
			labels = append(labels, n.Label)
		}
	}
	return labels
}

// notReady is why a node is not, as its kubelet says.
func notReady(object *corev1.Node) string {
	for _, c := range object.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady && c.Message != "":
			return c.Message
		case c.Type != corev1.NodeReady && c.Status == corev1.ConditionTrue:
			return string(c.Type)
		}
	}
	return "it has not said how it is"
}

func (c *cluster) nodesDone(ctx context.Context) error {
	a, err := c.connect(ctx)
	if err != nil {
		return err
	}

	list, err := a.set.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}

	c.mu.Lock()
	c.ready = readyNodes(c.nodes, list.Items)
	c.mu.Unlock()
	return nodesVerdict(c.nodes, list.Items)
}

// lastReady are the nodes that were Ready when they were last asked for.
func (c *cluster) lastReady() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready
}

func (c *cluster) nodesDo(ctx context.Context, _ bringup.Report) error {
	a, err := c.connect(ctx)
	if err != nil {
		return err
	}

	for _, n := range c.nodes {
		object, err := a.set.CoreV1().Nodes().Get(ctx, n.Label, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue // it has not joined
		}
		if err != nil {
			return fmt.Errorf("read node %s: %w", n.Label, err)
		}

		patch := rolePatch(object, n.ControlPlane, n.Worker)
		if patch == nil {
			continue
		}
		if _, err := a.set.CoreV1().Nodes().Patch(
			ctx, n.Label, types.MergePatchType, patch, metav1.PatchOptions{},
		); err != nil {
			return fmt.Errorf("give node %s its roles: %w", n.Label, err)
		}
	}

	return nil
}

func (c *cluster) runningDone(ctx context.Context) error {
	a, err := c.connect(ctx)
	if err != nil {
		return err
	}

	sets, err := a.set.AppsV1().DaemonSets("kube-system").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list daemon sets: %w", err)
	}

	deployments, err := a.set.AppsV1().Deployments("kube-system").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list deployments: %w", err)
	}

	return workloadsVerdict(sets.Items, deployments.Items)
}

// workloadsVerdict waits for whatever is not rolled out.
func workloadsVerdict(sets []appsv1.DaemonSet, deployments []appsv1.Deployment) error {
	for _, s := range sets {
		if s.Status.ObservedGeneration < s.Generation || s.Status.UpdatedNumberScheduled < s.Status.DesiredNumberScheduled ||
			s.Status.NumberReady < s.Status.DesiredNumberScheduled || s.Status.DesiredNumberScheduled == 0 {
			return bringup.Wait(
				"%s: %d of %d pods are ready", s.Name, s.Status.NumberReady, s.Status.DesiredNumberScheduled,
			)
		}
	}
	for _, d := range deployments {
		want := int32(1)
		if d.Spec.Replicas != nil {
			want = *d.Spec.Replicas
		}
		if d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < want || d.Status.ReadyReplicas < want {
			return bringup.Wait("%s: %d of %d pods are ready", d.Name, d.Status.ReadyReplicas, want)
		}
	}
	return nil
}
