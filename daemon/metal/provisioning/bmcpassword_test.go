package provisioning

import (
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
)

func TestWhenIronicNeedsABMC(t *testing.T) {
	for state, busy := range map[metal3api.ProvisioningState]bool{
		metal3api.StateNone:                  false,
		metal3api.StateRegistering:           false,
		metal3api.StateAvailable:             false,
		metal3api.StateProvisioned:           false,
		metal3api.StateExternallyProvisioned: false,
		metal3api.StateInspecting:            true,
		metal3api.StatePreparing:             true,
		metal3api.StateProvisioning:          true,
		metal3api.StateDeprovisioning:        true,
		metal3api.StateDeleting:              true,
	} {
		h := &metal3api.BareMetalHost{}
		h.Status.Provisioning.State = state
		assert.Equal(t, busy, bmcUse(h) != "", state)
	}
}
