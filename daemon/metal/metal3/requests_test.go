package metal3

import (
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/label"
)

func TestRequestsOfHosts(t *testing.T) {
	for want, p := range map[string]Patch{
		`{"spec":{"online":false}}`:                                                     PowerPatch(false),
		`{"metadata":{"annotations":{"reboot.metal3.io":""}}}`:                          RebootPatch(),
		`{"metadata":{"annotations":{"inspect.metal3.io":""}}}`:                         InspectPatch(),
		`{"metadata":{"annotations":{"baremetalhost.metal3.io/paused":null}}}`:          ResumePatch(),
		`{"metadata":{"annotations":{"firstlight.dev/overwrite":"data-00000000000a"}}}`: ConsentPatch("data-00000000000a"),
	} {
		text, err := p.JSON()
		require.NoError(t, err)
		assert.Equal(t, want, string(text))
	}
}

func TestWhichHostsAreInspectedAgain(t *testing.T) {
	for state, can := range map[metal3api.ProvisioningState]bool{
		metal3api.StateNone: false, metal3api.StateInspecting: false, metal3api.StateAvailable: true,
		metal3api.StateProvisioning: false, metal3api.StateProvisioned: false, metal3api.StateExternallyProvisioned: false,
	} {
		h := &metal3api.BareMetalHost{}
		h.Status.Provisioning.State = state
		assert.Equal(t, can, CanInspect(h), state)
		h.Spec.Image = &metal3api.Image{}
		assert.False(t, CanInspect(h), "it is to have an image")
	}
}

func TestWhoPausedAHost(t *testing.T) {
	for value, byOwner := range map[string]bool{"": true, "me": true, pausedBy: false, label.Hold: false} {
		h := &metal3api.BareMetalHost{}
		assert.False(t, IsPausedByOwner(h))
		h.Annotations = map[string]string{annotationPaused: value}
		assert.Equal(t, byOwner, IsPausedByOwner(h), value)
	}
}
