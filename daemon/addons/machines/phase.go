package machines

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"firstlight.dev/firstlight/daemon/addons/machines/launcher"
	v1 "firstlight.dev/firstlight/daemon/addons/machines/v1"
	"firstlight.dev/firstlight/daemon/engine/ctrlmanager"
)

// observation is what is to be said of an instance.
type observation struct {
	phase   v1.Phase
	reason  string // of the condition Ready
	message string
}

func (o observation) isReady() bool { return o.reason == v1.ReasonReady }

// Observe tells an instance's phase by its pod; nil if there is none. It is asked of instances that have not ended, and
// what ran once is Running until it ends.
func Observe(i *v1.VirtualMachineInstance, pod *corev1.Pod) observation {
	switch {
	case pod == nil && hadPod(i):
		return observation{v1.Failed, v1.ReasonGone, "its pod was removed by somebody"}
	case pod == nil:
		return observation{v1.Pending, v1.ReasonStarting, "its pod is not there yet"}
	case pod.Status.Phase == corev1.PodSucceeded:
		return observation{v1.Succeeded, v1.ReasonEnded, "the machine was powered down"}
	case pod.Status.Phase == corev1.PodFailed:
		return observation{v1.Failed, v1.ReasonFailed, failure(pod)}
	}

	o := progress(pod)
	if i.Status.Phase == v1.Running && !o.isReady() {
		o = observation{v1.Running, v1.ReasonStarting, "QEMU does not answer"}
	}
	if !pod.DeletionTimestamp.IsZero() {
		o.reason, o.message = v1.ReasonTerminating, "the machine is being powered down"
	}
	return o
}

// hadPod reports whether a pod was seen.
func hadPod(i *v1.VirtualMachineInstance) bool {
	return i.Status.Phase != "" && i.Status.Phase != v1.Pending
}

func progress(pod *corev1.Pod) observation {
	if pod.Spec.NodeName == "" {
		o := observation{v1.Scheduling, v1.ReasonStarting, "its pod waits for a node"}
		if c := findPodCondition(pod, corev1.PodScheduled); c != nil && c.Reason == corev1.PodReasonUnschedulable {
			o.reason, o.message = v1.ReasonUnschedulable, c.Message
		}
		return o
	}
	if c := findPodCondition(pod, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
		return observation{v1.Running, v1.ReasonReady, "the machine runs"}
	}

	o := observation{v1.Scheduled, v1.ReasonStarting, "its disks are being prepared"}
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			o.message = "its container waits: " + w.Reason
			if w.Message != "" {
				o.message += ": " + w.Message
			}
		}
	}
	return o
}

func findPodCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	n := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if n < 0 {
		return nil
	}
	return &pod.Status.Conditions[n]
}

// failure is why a pod failed: the launcher's last sentence, or the kubelet's.
func failure(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil && t.Message != "" {
			return t.Message
		} else if t != nil && t.Reason != "" && pod.Status.Message == "" {
			return "its container ended: " + t.Reason // OOMKilled
		}
	}
	if pod.Status.Message != "" {
		return pod.Status.Message // of an eviction
	}
	return "its pod failed: kubectl describe pod " + pod.Name
}

// Describe writes an observation into a status.
func Describe(i *v1.VirtualMachineInstance, pod *corev1.Pod, o observation) {
	s := &i.Status
	s.Phase, s.Reason, s.ActivePods, s.Interfaces = o.phase, "", nil, nil
	switch {
	case o.phase.IsFinal():
		s.Reason = o.reason // the node stays: whoever looks for the reason looks there
	case pod != nil:
		s.NodeName = pod.Spec.NodeName
		s.ActivePods = map[types.UID]string{pod.UID: pod.Spec.NodeName}
		s.Interfaces = describeInterfaces(i, pod)
	}
	meta.SetStatusCondition(&s.Conditions, newCondition(v1.ConditionReady, o.isReady(), o.reason, o.message, i.Generation))
}

func describeInterfaces(i *v1.VirtualMachineInstance, pod *corev1.Pod) (all []v1.InterfaceStatus) {
	for _, is := range i.Spec.Domain.Devices.Interfaces {
		s := v1.InterfaceStatus{Name: is.Name, IPAddress: pod.Status.PodIP, MAC: launcher.MAC(i.Namespace, i.Name, is)}
		for _, ip := range pod.Status.PodIPs {
			s.IPAddresses = append(s.IPAddresses, ip.IP)
		}
		all = append(all, s)
	}
	return all
}

func newCondition(kind string, is bool, reason, message string, generation int64) metav1.Condition {
	c := metav1.Condition{
		Type:               kind,
		Status:             metav1.ConditionFalse,
		Reason:             reason,
		Message:            ctrlmanager.TruncateNote(message),
		ObservedGeneration: generation,
	}
	if is {
		c.Status = metav1.ConditionTrue
	}
	return c
}
