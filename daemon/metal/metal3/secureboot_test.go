package metal3

import (
	"context"
	"strings"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/label"
)

// TestWhoBootsSignedPrograms: hosts say so by bootMode or by the annotation; for other machines the site does.
func TestWhoBootsSignedPrograms(t *testing.T) {
	byMode := host("by-mode", "52:54:00:00:00:01", metal3api.StateInspecting)
	byMode.Spec.BootMode = metal3api.UEFISecureBoot
	byAnnotation := host("by-annotation", "52:54:00:00:00:02", metal3api.StateInspecting)
	byAnnotation.Spec.BootMode = metal3api.UEFI
	byAnnotation.Annotations = map[string]string{label.SecureBoot: "true"}
	plain := host("plain", "52:54:00:00:00:03", metal3api.StateInspecting)
	plain.Spec.BootMode = metal3api.UEFI
	plain.Annotations = map[string]string{label.SecureBoot: "false"}
	for i, h := range []*metal3api.BareMetalHost{&byMode, &byAnnotation, &plain} {
		h.Status.HardwareDetails.NIC = []metal3api.NIC{{MAC: "52:54:00:aa:00:0" + string(rune('1'+i))}}
	}

	h := newHosts(t, t.TempDir())
	require.NoError(t, h.Set([]metal3api.BareMetalHost{byMode, byAnnotation, plain}))
	for mac, want := range map[string]bool{
		"52:54:00:00:00:01": true, "52:54:00:aa:00:01": true, "52:54:00:00:00:02": true, "52:54:00:00:00:03": false,
		"52:54:00:00:00:04": false,
	} {
		assert.Equal(t, want, h.Boot(context.Background(), machine(t, mac)).SecureBoot, mac)
	}

	h.BootsSecurely = func(mac string) bool { return strings.HasSuffix(mac, ":04") || strings.HasSuffix(mac, ":03") }
	assert.True(t, h.Boot(context.Background(), machine(t, "52:54:00:00:00:04")).SecureBoot, "an unknown machine")
	hosts := h.Boot(context.Background(), machine(t, "52:54:00:00:00:03"))
	assert.False(t, hosts.SecureBoot, "its host says how it boots")
}

// TestSecureBootByIPMI: the operator refuses UEFISecureBoot there, so the host says UEFI and the annotation the rest.
func TestSecureBootByIPMI(t *testing.T) {
	s := loadSite(t, []byte(`
name: edge-7
nodeDefaults: {bootMode: UEFISecureBoot, bmc: {username: admin, password: bmc-pass}}
nodes:
  - {name: by-ipmi, macs: ["52:54:00:00:00:01"], bmc: {address: "ipmi://10.10.111.5"}}
  - {name: by-redfish, macs: ["52:54:00:00:00:02"], bmc: {address: "redfish://10.10.111.6/redfish/v1/Systems/1"}}
  - {name: plain, macs: ["52:54:00:00:00:03"], bmc: {address: "ipmi://10.10.111.7"}, bootMode: UEFI}
`))
	for i, want := range []struct {
		mode       metal3api.BootMode
		annotation string
		securely   bool
	}{
		{metal3api.UEFI, "true", true},
		{metal3api.UEFISecureBoot, "", true},
		{metal3api.UEFI, "", false},
	} {
		h, _ := NewHost(s.Nodes[i], nil)
		assert.Equal(t, want.mode, h.Spec.BootMode, h.Name)
		assert.Equal(t, want.annotation, h.Annotations[label.SecureBoot], h.Name)
		assert.Equal(t, want.securely, BootsSecurely(h), h.Name)
	}
}
