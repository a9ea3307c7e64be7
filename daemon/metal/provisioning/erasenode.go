package provisioning

import (
	"errors"
	"net/http"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/daemon/metal/standinbmc"
)

// hasBMC reports whether the appliance can switch a host on itself, also one that site.yaml does not name any more.
func hasBMC(h *metal3api.BareMetalHost) bool {
	return !strings.Contains(h.Spec.BMC.Address, "://"+standinbmc.Address+"/")
}

// isRegistered reports whether the operator has told Ironic all about a node: what it boots comes last, when Ironic has
// accepted its BMC (baremetal-operator, ValidateManagementAccess).
func isRegistered(n *nodes.Node) bool {
	kernel, disc := n.DriverInfo["deploy_kernel"], n.DriverInfo["deploy_iso"]
	return n.ProvisionState != "enroll" && n.ProvisionState != "verifying" && (kernel != nil || disc != nil)
}

// isRefusal reports whether an error is Ironic's last word: it may be silent, starting, or have the node locked.
func isRefusal(err error) bool {
	var answer gophercloud.ErrUnexpectedResponseCode
	if !errors.As(err, &answer) {
		return false
	}
	return answer.Actual < http.StatusInternalServerError && answer.Actual != http.StatusConflict
}
