package metal3

import (
	"strings"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
)

// BootMAC is the MAC that a host boots from, in lower case: what its object says, or else the NIC that inspection saw
// it boot from; "" if neither is known.
func BootMAC(h *metal3api.BareMetalHost) string {
	if h == nil {
		return ""
	}
	if h.Spec.BootMACAddress != "" || h.Status.HardwareDetails == nil {
		return strings.ToLower(h.Spec.BootMACAddress)
	}

	for _, nic := range h.Status.HardwareDetails.NIC {
		if nic.PXE {
			return strings.ToLower(nic.MAC)
		}
	}

	return ""
}
