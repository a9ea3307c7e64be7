package daemonpod

import (
	"testing"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What a manager needs no leader for: never two pods at a time, on the node's own loopback, at one port.
func TestAManagerIsOneByConstruction(t *testing.T) {
	m := Manager{Command: "bpa", Args: []string{"--namespace", "bpa"}, Health: 8384}
	d := NewDeployment(metav1.ObjectMeta{Namespace: "bpa", Name: "bpa-operator"}, nil, m.Spec())
	assert.EqualValues(t, 1, *d.Spec.Replicas)
	assert.Equal(t, appsv1.RecreateDeploymentStrategyType, d.Spec.Strategy.Type)
	assert.True(t, d.Spec.Template.Spec.HostNetwork)
	want := []string{"--namespace", "bpa", "--elect=false", "--health", "127.0.0.1:8384"}
	assert.Equal(t, want, d.Spec.Template.Spec.Containers[0].Args)
	assert.Equal(t, []string{"--namespace", "bpa"}, m.Args, "as they were given")
}
