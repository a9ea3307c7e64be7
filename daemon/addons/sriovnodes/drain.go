package sriovnodes

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// drainKey is the annotation of a node whose pods are being evicted because virtual functions must change. It says whether
// the node took pods before. An operator that starts after a crash continues by it.
const drainKey = "sriovnetwork.akraino.org/drain"

const (
	wasOpen   = "open"
	wasClosed = "closed" // somebody had cordoned it
)

// NodeView is what decides about one node.
type NodeView struct {
	Name      string
	Drain     string // its annotation drainKey
	IsClosed  bool   // cordoned
	BlockedBy []string
	Status    string // State.SyncStatus; "" without a State
}

// Step is what is done next. At most one of its fields is set.
type Step struct {
	Start  string // a node: cordon it, and annotate it
	Evict  string // a node: evict the pods that block it
	Finish string // a node: uncordon it unless it was closed before, and remove the annotation
}

// DecideDrain says what is done next for nodes whose virtual functions must change: one node at a time. mayStart reports
// whether all pods that block a node can be evicted.
func DecideDrain(all []NodeView, mayStart func(NodeView) bool) Step {
	all = slices.SortedFunc(slices.Values(all), func(a, b NodeView) int { return strings.Compare(a.Name, b.Name) })
	for _, n := range all {
		switch {
		case n.Drain == "":
		case len(n.BlockedBy) > 0:
			return Step{Evict: n.Name}
		case n.Status == SyncInProgress:
			return Step{} // containers end, or the node's agent has not looked yet
		default:
			return Step{Finish: n.Name}
		}
	}
	for _, n := range all {
		if len(n.BlockedBy) > 0 && mayStart(n) {
			return Step{Start: n.Name}
		}
	}
	return Step{}
}

// checkEvictable says why a pod cannot be evicted to have another node, or another start, do its work.
func checkEvictable(pod *corev1.Pod) error {
	name := pod.Namespace + "/" + pod.Name
	if _, isMirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; isMirror {
		return fmt.Errorf("pod %s is a file of the node's kubelet; remove that", name)
	}
	controller := metav1.GetControllerOf(pod)
	switch {
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return nil
	case controller == nil:
		return fmt.Errorf("pod %s has no controller that would make it again; delete it yourself", name)
	case controller.Kind == "DaemonSet":
		return fmt.Errorf("pod %s is of DaemonSet %s, which ignores that a node is cordoned; delete it, or keep that from "+
			"the node, until the virtual functions have changed", name, controller.Name)
	}
	return nil
}
