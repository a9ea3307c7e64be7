package installer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/bringup"
	"firstlight.dev/firstlight/daemon/engine/remote"
)

// Remove takes nodes out of the cluster: their pods go elsewhere, the cluster forgets them, and what
// Kubernetes left on them is cleared away. A node that does not answer is taken out all the same: that
// is what removing a dead one is for.
func (i *Installer) Remove(ctx context.Context, labels []string) error {
	plans := map[string]*bringup.Runner{}
	var order []string
	for _, label := range labels {
		n, err := i.cluster.leavingNode(label)
		if err != nil {
			return bringup.Permanent(err)
		}

		if plans[label] == nil {
			order = append(order, label)
		}

		plans[label] = &bringup.Runner{Plan: n.leavingStages(), Log: n.log}
	}

	if len(order) == 0 {
		return bringup.Permanent(errors.New("name the nodes to remove"))
	}
	if err := i.run(ctx, plans, order); err != nil {
		return err
	}

	return i.cluster.saveRemoved()
}

// saveRemoved writes down which of the nodes that were taken out did not answer and were not cleared: the
// operator marks their servers (docs/kud.md).
func (c *cluster) saveRemoved() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, err := json.Marshal(contract.Removed{Dirty: c.dirty})
	if err != nil {
		return fmt.Errorf("encode what was removed: %w", err)
	}

	return atomicfile.WriteChanged(filepath.Join(c.dir, contract.FileRemoved), append(text, '\n'), 0o644)
}

// recordCleared keeps why a node was not cleared; "" if it was.
func (c *cluster) recordCleared(label, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if why == "" {
		delete(c.dirty, label)
		return
	}

	if c.dirty == nil {
		c.dirty = map[string]string{}
	}

	c.dirty[label] = why
}

func (c *cluster) leavingNode(label string) (*node, error) {
	for _, n := range c.nodes {
		if n.Label != label {
			continue
		}
		if n.ControlPlane {
			return nil, fmt.Errorf("%s is a control plane; only workers are removed from a cluster", label)
		}
		return n, nil
	}
	return nil, fmt.Errorf("%s is not in the inventory", label)
}

func (n *node) leavingStages() []bringup.Stage {
	return []bringup.Stage{
		{Name: "drained", Title: "Pods are moved away",
			Fact: "no pod of a user runs there",
			Why:  "First: pods go elsewhere while the node still can end them.",
			Done: n.drainedDone, Do: n.drainedDo, Recheck: time.Hour},
		{Name: "forgotten", Title: "The node leaves the cluster",
			Fact: "the cluster does not know the node any more",
			Why:  "After the pods, which would be lost with it.",
			Done: n.forgottenDone, Do: n.forgottenDo, Recheck: time.Minute},
		{Name: "cleared", Title: "The node is cleared",
			Fact: "nothing of the cluster runs on the node, or it does not answer",
			Why:  "Last: a node that still held a certificate would come back. What else is on its disk stays.",
			Done: n.clearedDone, Do: n.clearedDo, Recheck: time.Minute},
	}
}

// kubectl runs on a control plane that answers.
func (n *node) kubectl(ctx context.Context, args ...string) (string, error) {
	a, err := n.connect(ctx)
	if err != nil {
		return "", err
	}
	return a.from.shell.Run(ctx, nil, "kubectl", append([]string{"--kubeconfig", "/etc/kubernetes/admin.conf"}, args...)...)
}

// isGone tells whether the cluster does not know the node.
func (n *node) isGone(ctx context.Context) (bool, error) {
	a, err := n.connect(ctx)
	if err != nil {
		return false, bringup.Wait("the cluster's API: %v", err)
	}

	_, err = a.set.CoreV1().Nodes().Get(ctx, n.Label, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read node %s: %w", n.Label, err)
	}

	return false, nil
}

// drainedDone asks kubectl what it would still evict.
func (n *node) drainedDone(ctx context.Context) error {
	gone, err := n.isGone(ctx)
	if err != nil || gone {
		return err
	}

	a, err := n.connect(ctx)
	if err != nil {
		return err
	}

	object, err := a.set.CoreV1().Nodes().Get(ctx, n.Label, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read node %s: %w", n.Label, err)
	}
	if !object.Spec.Unschedulable {
		return errors.New("it still takes pods")
	}

	pods, err := a.set.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Label})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}

	dead := readyCondition(object) != corev1.ConditionTrue
	if left := stayingPods(pods.Items, dead); len(left) > 0 {
		return fmt.Errorf("%d pods are still there, the first is %s", len(left), left[0])
	}

	return nil
}

// stayingPods are the pods on a node that are neither the node's own (of a DaemonSet, or static) nor over. Of
// a dead node those that were told to go count as gone: nobody is left to say so.
func stayingPods(pods []corev1.Pod, dead bool) (names []string) {
	for _, p := range pods {
		_, static := p.Annotations[corev1.MirrorPodAnnotationKey]
		owner := metav1.GetControllerOf(&p)
		over := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if static || over || owner != nil && owner.Kind == "DaemonSet" || dead && p.DeletionTimestamp != nil {
			continue
		}

		names = append(names, p.Namespace+"/"+p.Name)
	}
	return names
}

func (n *node) drainedDo(ctx context.Context, report bringup.Report) error {
	report("moving its pods")
	_, err := n.kubectl(ctx, "drain", n.Label, "--ignore-daemonsets", "--delete-emptydir-data", "--force",
		"--skip-wait-for-delete-timeout=60", "--timeout=3m")
	return err
}

func (n *node) forgottenDone(ctx context.Context) error {
	gone, err := n.isGone(ctx)
	if err != nil || gone {
		return err
	}
	return errors.New("the cluster still knows it")
}

func (n *node) forgottenDo(ctx context.Context, _ bringup.Report) error {
	_, err := n.kubectl(ctx, "delete", "node", n.Label, "--ignore-not-found", "--timeout=1m")
	return err
}

// leftoverScript says what of a cluster is still on a node.
const leftoverScript = `
for conf in /etc/kubernetes/*.conf; do test ! -e "$conf" || { echo "$conf is still there"; exit 1; }; done
test ! -e ` + markerPath + ` || { echo "its mark is still there"; exit 1; }
test "$(systemctl is-active kubelet.service)" != active || { echo "the kubelet still runs"; exit 1; }
`

func (n *node) clearedDone(ctx context.Context) error {
	_, err := n.shell.RunScript(ctx, leftoverScript)
	if err == nil {
		n.recordCleared(n.Label, "")
		return nil
	}

	var reach *remote.ReachError
	if errors.As(err, &reach) {
		n.recordCleared(n.Label, "it did not answer: "+reach.Err.Error())
		n.log.Warn("node does not answer and is taken out as it is", "error", err)
		return nil
	}

	return answerOf(err, "it is not cleared")
}

// clearedDo lets kubeadm undo what it did, and takes away the network and the mark. Images and programs
// stay: they hurt nobody, and a node that comes back needs them.
func (n *node) clearedDo(ctx context.Context, report bringup.Report) error {
	report("clearing it")
	_, err := n.runLocked(ctx, `
systemctl disable --quiet kubelet.service firstlight-endpoint.service 2>/dev/null || true
kubeadm reset --force
systemctl stop kubelet.service firstlight-endpoint.service 2>/dev/null || true
rm -rf /etc/cni/net.d/10-firstlight.conflist /run/firstlight/cni /run/firstlight/*.service `+joinPath+` /run/firstlight.cni
nft delete table inet firstlight-pods 2>/dev/null || true
nft delete table ip kube-proxy 2>/dev/null || true
nft delete table ip6 kube-proxy 2>/dev/null || true
ip route flush proto 70 2>/dev/null || true
rm -f `+markerPath+`
`)
	return err
}

// leftoverStages are those of a node that the operator says was let go of by a cluster, n.leftBy, while it did
// not answer: what is on it of that cluster goes, before anybody asks whose it is. Of any other none.
func (n *node) leftoverStages() []bringup.Stage {
	if n.leftBy == "" {
		return nil
	}
	return []bringup.Stage{{
		Name:  "remains-cleared",
		Title: "Remains of another cluster are cleared",
		Fact:  "nothing is left on the node of the cluster that it was taken out of while it did not answer",
		Why:   "Before anything else: it would be refused as that cluster's, and come back to it.",
		Done:  n.leftoverDone,
		Do:    n.leftoverDo,
	}}
}

// hasLeftovers tells whether what a node says of itself is of the cluster that let go of it. As what it is to
// be in this one it is not: a run before this may have come so far.
func hasLeftovers(f facts, leftBy string, is marker) bool {
	return f.Marker != nil && f.Marker.Cluster == leftBy && (f.Marker.Cluster != is.Cluster || f.Marker.Label != is.Label)
}

func (n *node) leftoverDone(ctx context.Context) error {
	f, err := n.collectFacts(ctx)
	if err != nil {
		return permanentIfChanged(err)
	}
	if hasLeftovers(f, n.leftBy, marker{Cluster: n.Cluster, Label: n.Label}) {
		return fmt.Errorf("it still is %s of cluster %s, which has let go of it", f.Marker.Label, f.Marker.Cluster)
	}

	return nil
}

func (n *node) leftoverDo(ctx context.Context, report bringup.Report) error {
	if n.leftoverDone(ctx) == nil || !hasLeftovers(n.facts(), n.leftBy, marker{Cluster: n.Cluster, Label: n.Label}) {
		return nil
	}
	return n.clearedDo(ctx, report)
}
