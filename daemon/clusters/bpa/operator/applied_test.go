package operator

import (
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/bpa/match"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// testAppliedHost: a host of kubectl and the Provisioning that names its MAC are applied together. The host is on hold,
// no one knows its MAC, and no site names it: the cluster waits, and says for what, until the host is verified.
func testAppliedHost(t *testing.T, r *fixture) {
	r.host(1, func(b *host) {
		b.Labels, b.Annotations = nil, map[string]string{metal3api.PausedAnnotation: label.Hold}
		b.Spec.BootMACAddress, b.Status = "", metal3api.BareMetalHostStatus{}
	})
	r.apply(provisioning("edge", "masters:\n- master-1: {mac-address: '"+mac(1, 0)+"'}"))
	p := r.settle("edge")
	assert.Equal(t, v1alpha1.PhaseWaiting, p.Status.Phase)
	assert.Contains(t, p.Status.Message, "Host with MAC Address "+mac(1, 0)+" not found")
	assert.Empty(t, r.holder(1))

	r.changeHost(1, func(b *host) {
		b.Annotations = nil
		b.Status.Provisioning.State = metal3api.StateAvailable
		b.Status.HardwareDetails = &metal3api.HardwareDetails{
			CPU:          metal3api.CPU{Count: 1},
			RAMMebibytes: 2048,
			NIC:          []metal3api.NIC{{MAC: mac(1, 0), IP: addr(1), PXE: true}},
		}
	})
	p = r.settle("edge")
	assert.Equal(t, v1alpha1.PhaseWaiting, p.Status.Phase)
	assert.Contains(t, p.Status.Message, "is available, not provisioned yet")

	r.changeHost(1, func(b *host) { b.Status.Provisioning.State = metal3api.StateProvisioned })
	p = r.settle("edge")
	assert.Equal(t, v1alpha1.PhaseWaiting, p.Status.Phase, "it was not verified")
	assert.Contains(t, p.Status.Message, "not proven to work yet")

	r.changeHost(1, func(b *host) { b.Labels = map[string]string{label.Verified: "true"} })
	p = r.settle("edge")
	require.Equal(t, v1alpha1.PhaseInstalling, p.Status.Phase, p.Status.Message)
	assert.Equal(t, "Provisioning default/edge master-1", r.holder(1))
	assert.Equal(t, addr(1), p.Status.Nodes[0].Address)
	assert.NotEqual(t, match.HostNotFound, p.Status.Nodes[0].Reason)
}
