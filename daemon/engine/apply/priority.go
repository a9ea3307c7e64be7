package apply

import corev1 "k8s.io/api/core/v1"

// MakeCritical makes a pod one of those that the appliance is mended with: when DATA or memory runs short the
// kubelet neither evicts it nor keeps it from starting, so that there is something left to remove
// artifacts with. Kubernetes allows the class in any namespace.
func MakeCritical(s corev1.PodSpec) corev1.PodSpec {
	s.PriorityClassName = "system-cluster-critical"
	s.Tolerations = append(s.Tolerations, corev1.Toleration{
		Key:      corev1.TaintNodeDiskPressure,
		Operator: corev1.TolerationOpExists,
		Effect:   corev1.TaintEffectNoSchedule,
	})
	return s
}
