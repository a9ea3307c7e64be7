package nodeupdate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pods are those of one node, by what becomes of them when the node is drained, namespace/name. They are sorted.
type Pods struct {
	Movable   []string // evicted: their controllers make them again elsewhere
	Unmovable []string // a sentence for each that nothing would make again
	Unready   []string // of the system, which stay, and that are not ready
}

// SortPods sorts the pods of a node, as kubectl drain does with --ignore-daemonsets and --delete-emptydir-data, but
// without --force.
func SortPods(pods []corev1.Pod) Pods {
	var p Pods
	for i := range pods {
		pod := &pods[i]
		name := pod.Namespace + "/" + pod.Name
		_, isStatic := pod.Annotations[corev1.MirrorPodAnnotationKey]
		owner := metav1.GetControllerOf(pod)
		switch {
		case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		case isStatic || owner != nil && owner.Kind == "DaemonSet":
			if pod.Namespace == metav1.NamespaceSystem && !isReady(pod) {
				p.Unready = append(p.Unready, name)
			}
		case owner == nil && pod.DeletionTimestamp == nil:
			const text = "pod %s has no controller that would make it again; delete it, or give it one"
			p.Unmovable = append(p.Unmovable, fmt.Sprintf(text, name))
		default:
			p.Movable = append(p.Movable, name)
		}
	}

	for _, names := range [][]string{p.Movable, p.Unmovable, p.Unready} {
		slices.Sort(names)
	}
	return p
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
