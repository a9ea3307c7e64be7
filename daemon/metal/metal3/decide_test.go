package metal3

import (
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/pxe"
)

func in(state metal3api.ProvisioningState) *metal3api.BareMetalHost {
	h := &metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	h.Status.Provisioning.State = state
	return h
}

func TestDecide(t *testing.T) {
	const script = "pxelinux.cfg/52-54-00-00-00-01"
	ramdisk := Ramdisk{Kernel: "ramdisk/kernel", Initrd: []string{"ramdisk/initramfs"}, Args: []string{"quiet"}}
	look := pxe.Boot{Action: pxe.ActionInspect, Kernel: "ramdisk/kernel", Initrd: []string{"ramdisk/initramfs"}, Args: []string{"quiet"}}
	disk := pxe.Boot{Action: pxe.ActionDisk}
	for _, c := range []struct {
		name string
		view View
		want pxe.Boot
	}{
		{"unknown machine", View{Current: true}, look},
		{"unknown machine with a script of somebody's", View{Current: true, Script: script}, look},
		{"its record is torn", View{Current: true, Torn: true}, disk},
		{"starting, its record is torn", View{Torn: true, Script: script}, disk},
		{"starting, never seen", View{}, refuseBoot("the appliance is still starting and does not know its hosts yet")},
		{"starting, prepared", View{Script: script}, wait("the appliance is still starting and does not know its hosts yet")},
		{"starting, was in service", View{Live: true}, disk},
		{"starting, was in service, old script", View{Live: true, Script: script}, disk},
		{"provisioned", View{Current: true, Host: in(metal3api.StateProvisioned)}, disk},
		{"provisioned, old script", View{Current: true, Host: in(metal3api.StateProvisioned), Script: script}, disk},
		{"externally provisioned", View{Current: true, Host: in(metal3api.StateExternallyProvisioned), Script: script}, disk},
		{"new", View{Current: true, Host: in("")}, refuseBoot("host node-1 is not registered yet")},
		{"registering", View{Current: true, Host: in(metal3api.StateRegistering)}, refuseBoot("host node-1 is not registered yet")},
		{"without a BMC", View{Current: true, Host: in(metal3api.StateUnmanaged)}, refuseBoot("host node-1 is not registered yet")},
		{"inspecting", View{Current: true, Host: in(metal3api.StateInspecting), Script: script}, pxe.Boot{Action: pxe.ActionInspect, Script: script}},
		{"inspecting, too early", View{Current: true, Host: in(metal3api.StateInspecting)}, wait("host node-1 is inspecting, but Ironic has not prepared its boot yet")},
		{"cleaning", View{Current: true, Host: in(metal3api.StatePreparing), Script: script}, pxe.Boot{Action: pxe.ActionRamdisk, Script: script}},
		{"deploying", View{Current: true, Host: in(metal3api.StateProvisioning), Script: script}, pxe.Boot{Action: pxe.ActionRamdisk, Script: script}},
		{"deploying, too early", View{Current: true, Host: in(metal3api.StateProvisioning)}, wait("host node-1 is provisioning, but Ironic has not prepared its boot yet")},
		{"being cleaned up", View{Current: true, Host: in(metal3api.StateDeprovisioning), Script: script}, pxe.Boot{Action: pxe.ActionRamdisk, Script: script}},
		{"available", View{Current: true, Host: in(metal3api.StateAvailable)}, refuseBoot("host node-1 waits for an image; give it one in site.yaml")},
		{"being removed", View{Current: true, Host: in(metal3api.StateDeleting)}, refuseBoot("host node-1 is being removed")},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, Decide(c.view, ramdisk)) })
	}
}

// onDisc is a host that boots from a disc.
func onDisc(state metal3api.ProvisioningState) *metal3api.BareMetalHost {
	h := in(state)
	h.Spec.BMC.Address = "redfish-virtualmedia+https://10.0.0.5/redfish/v1/Systems/1"
	return h
}

// TestAHostBootsFromItsDiscOrFromTheNetwork, and from neither in service.
// TestWhichHostsRunTheRamdisk: it trusts whom it was told to when it booted.
func TestWhichHostsRunTheRamdisk(t *testing.T) {
	erasing := in(metal3api.StateAvailable)
	erasing.Annotations = map[string]string{annotationPaused: label.Erasing}
	for _, c := range []struct {
		host *metal3api.BareMetalHost
		want string
	}{
		{in(metal3api.StateInspecting), "is inspecting"},
		{in(metal3api.StatePreparing), "is preparing"},
		{in(metal3api.StateProvisioning), "is provisioning"},
		{in(metal3api.StateDeprovisioning), "is deprovisioning"},
		{erasing, "has its disks erased"},
		{in(metal3api.StateAvailable), ""},
		{in(metal3api.StateProvisioned), ""},
		{in(metal3api.StateExternallyProvisioned), ""},
		{in(metal3api.StateRegistering), ""},
	} {
		assert.Equal(t, c.want, DescribeRamdisk(c.host))
	}
}

func TestAHostBootsFromItsDiscOrFromTheNetwork(t *testing.T) {
	const fromDisc = "host node-1 boots from the disc that its BMC has, not from the network"
	for _, x := range []struct {
		host    *metal3api.BareMetalHost
		current bool
		disc    string // why it gets none
		network string // why it gets nothing there; "": it gets something
	}{
		{host: onDisc(metal3api.StateInspecting), current: true, network: fromDisc},
		{host: onDisc(metal3api.StateProvisioning), current: true, network: fromDisc},
		{host: onDisc(metal3api.StateDeprovisioning), current: true, network: fromDisc},
		{onDisc(""), true, "host node-1 is not registered, for which it boots no ramdisk", fromDisc},
		{onDisc(metal3api.StateAvailable), true, "host node-1 is available, for which it boots no ramdisk", fromDisc},
		{onDisc(metal3api.StateProvisioned), true, "host node-1 is in service and boots its own disk", ""},
		{onDisc(metal3api.StateProvisioned), false, "host node-1 is in service and boots its own disk", ""},
		{onDisc(metal3api.StateInspecting), false, "the appliance is still starting and does not know its hosts yet",
			"the appliance is still starting and does not know its hosts yet"},
		{in(metal3api.StateAvailable), true, "host node-1 boots from the network", "host node-1 waits for an image; give it one in site.yaml"},
		{nil, true, "the node is no host yet", ""},
	} {
		assert.Equal(t, x.disc, DecideDisc(x.host, x.current))
		boot := Decide(View{Host: x.host, Current: x.current}, Ramdisk{})
		assert.Equal(t, x.network, boot.Reason)
		assert.Equal(t, x.network != "", boot.Action == pxe.ActionRefuse)
	}
}

// Whatever else is known, a host in service is never given a ramdisk.
func TestNothingButItsDiskBootsInAHostInService(t *testing.T) {
	for _, state := range []metal3api.ProvisioningState{metal3api.StateProvisioned, metal3api.StateExternallyProvisioned} {
		for bits := range 8 {
			v := View{Host: in(state), Live: bits&1 != 0, Current: bits&2 != 0}
			if bits&4 != 0 {
				v.Script = "pxelinux.cfg/x"
			}
			assert.Equal(t, pxe.ActionDisk, Decide(v, Ramdisk{}).Action, "%+v", v)
		}
	}
}
