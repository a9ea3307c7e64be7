package apply

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

func TestVitalPodsStayOnAFullDisk(t *testing.T) {
	s := MakeCritical(corev1.PodSpec{NodeName: "appliance"})
	assert.Equal(t, "appliance", s.NodeName)
	assert.Equal(t, "system-cluster-critical", s.PriorityClassName)
	taint := corev1.Taint{Key: corev1.TaintNodeDiskPressure, Effect: corev1.TaintEffectNoSchedule}
	assert.Condition(t, func() bool { return s.Tolerations[0].Key == taint.Key && s.Tolerations[0].Effect == taint.Effect })
}
