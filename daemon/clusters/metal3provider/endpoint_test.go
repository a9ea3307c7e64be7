package metal3provider

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

// testEndpointFromPool: of two clusters that take their endpoints from a pool of one address, one has it, and keeps it
// when all is looked at again; the other says what it waits for, and gets one when there are more.
func testEndpointFromPool(t *testing.T, r *fixture) {
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "endpoints"}}
	p.Spec.NamePrefix = "endpoints"
	address := func(a v1alpha1.Address) *v1alpha1.Address { return &a }
	p.Spec.Pools = []v1alpha1.Range{{Start: address("10.0.0.100"), End: address("10.0.0.100")}}
	require.NoError(t, r.api.Create(t.Context(), p))

	at := func(name string) *v1beta2.Metal3Cluster {
		c := &v1beta2.Metal3Cluster{}
		r.get(name, c)
		return c
	}
	for _, name := range []string{"edge", "rim"} {
		r.addCluster(name, func(c *v1beta2.Metal3Cluster) {
			c.Spec.ControlPlaneEndpoint = v1beta2.APIEndpoint{}
			c.Spec.ControlPlaneEndpointFromPool = &v1beta2.EndpointPool{Name: "endpoints"}
		})
		if name == "edge" {
			r.until("it has an endpoint", func() bool { return at("edge").Spec.ControlPlaneEndpoint.Host != "" })
		}
	}
	r.round()
	r.round()
	assert.Equal(t, v1beta2.APIEndpoint{Host: "10.0.0.100", Port: 6443}, at("edge").Spec.ControlPlaneEndpoint)
	assert.True(t, ptr.Deref(at("edge").Status.Initialization.Provisioned, false))

	waiting := at("rim")
	assert.False(t, ptr.Deref(waiting.Status.Initialization.Provisioned, false))
	for _, c := range waiting.Status.Conditions {
		if c.Type == v1beta2.ConditionInfrastructureReady {
			assert.Equal(t, "ControlPlaneEndpointFailed", c.Reason)
			assert.Contains(t, c.Message, "an address of pool endpoints is not there yet: the pool has no free address")
		}
	}

	change(r, "endpoints", &v1alpha1.IPPool{}, func(p *v1alpha1.IPPool) { p.Spec.Pools[0].End = address("10.0.0.101") })
	r.until("it has an endpoint, too", func() bool { return at("rim").Spec.ControlPlaneEndpoint.Host == "10.0.0.101" })
	assert.Equal(t, "10.0.0.100", at("edge").Spec.ControlPlaneEndpoint.Host)
}
