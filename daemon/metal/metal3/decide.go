package metal3

import (
	"cmp"
	"fmt"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/pxe"
)

// View is all that is known of a machine that asks what to boot.
type View struct {
	Host    *metal3api.BareMetalHost // nil: no host has this MAC
	Node    string                   // of the site, without a BMC, that has this MAC and is no host yet; "": none
	Live    bool                     // the last record on DATA says that it is in service
	Torn    bool                     // that record cannot be read
	Current bool                     // the hosts were read from the API since the daemon started
	Script  string                   // what Ironic's conductor wrote for this MAC, below the HTTP root; "" if nothing
}

// Ramdisk is where package pxe serves the deploy ramdisk, and what it is told when it is
// booted only to look at a machine.
type Ramdisk struct {
	Kernel string
	Initrd []string
	Args   []string
}

// Decide is the one place that says what a machine boots; nobody else does. In this order:
//
//   - a host in service boots its disk, whatever else is known, also when it netboots by
//     mistake, also when an old script of Ironic's is still there;
//   - so does one without a host whose record cannot be read: it may be in service;
//   - while the hosts are not known yet, one that Ironic prepared a boot for waits, and everybody
//     else is sent on;
//   - an unknown machine is looked at and never written to: its ramdisk is told no
//     deployment, and Ironic has no node for it;
//   - a host that boots from a disc is sent on to that; DecideDisc says whether it gets one;
//   - a host that Ironic works on gets what Ironic prepared, and waits until it has.
func Decide(v View, r Ramdisk) pxe.Boot {
	if v.Host != nil && InService(v.Host) {
		return pxe.Boot{Action: pxe.ActionDisk}
	}
	if v.Host == nil && v.Torn {
		return pxe.Boot{Action: pxe.ActionDisk}
	}
	if !v.Current {
		if v.Live {
			return pxe.Boot{Action: pxe.ActionDisk}
		}
		if v.Script != "" {
			return wait("the appliance is still starting and does not know its hosts yet") // one of them was about to boot
		}
		return refuseBoot("the appliance is still starting and does not know its hosts yet")
	}
	if v.Host == nil && v.Node != "" {
		return wait("node %s has no BMC: now that it asks it is registered, and then inspected", v.Node)
	}
	if v.Host == nil {
		return pxe.Boot{Action: pxe.ActionInspect, Kernel: r.Kernel, Initrd: r.Initrd, Args: r.Args}
	}

	name, state := v.Host.Name, v.Host.Status.Provisioning.State
	if BootsFromDisc(v.Host) {
		return refuseBoot("host %s boots from the disc that its BMC has, not from the network", name)
	}
	if v.Script != "" {
		if state == metal3api.StateInspecting {
			return pxe.Boot{Action: pxe.ActionInspect, Script: v.Script}
		}
		return pxe.Boot{Action: pxe.ActionRamdisk, Script: v.Script}
	}

	if IsErasing(v.Host) {
		return wait("disks of host %s are erased, but Ironic has not prepared its boot yet", name)
	}
	switch state {
	case metal3api.StateInspecting, metal3api.StatePreparing, metal3api.StateProvisioning, metal3api.StateDeprovisioning:
		return wait("host %s is %s, but Ironic has not prepared its boot yet", name, state)
	case metal3api.StateReady, metal3api.StateAvailable:
		return refuseBoot("host %s waits for an image; give it one in site.yaml", name)
	case metal3api.StateDeleting, metal3api.StatePoweringOffBeforeDelete:
		return refuseBoot("host %s is being removed", name)
	}

	return refuseBoot("host %s is not registered yet", name)
}

// InService tells whether a host runs an operating system that must not be touched.
func InService(h *metal3api.BareMetalHost) bool {
	switch h.Status.Provisioning.State {
	case metal3api.StateProvisioned, metal3api.StateExternallyProvisioned:
		return true
	}
	return false
}

// DescribeRamdisk is what a host does with the ramdisk, which knows whom it trusts from its boot on; "" if it runs none.
func DescribeRamdisk(h *metal3api.BareMetalHost) string {
	if IsErasing(h) {
		return "has its disks erased"
	}
	switch state := h.Status.Provisioning.State; state {
	case metal3api.StateInspecting, metal3api.StatePreparing, metal3api.StateProvisioning, metal3api.StateDeprovisioning:
		return "is " + string(state)
	}
	return ""
}

// DecideDisc is Decide for a host that boots from a disc: the reason why it gets none to boot the ramdisk from, as a
// sentence; "" if it gets one. h is nil if no host has the MAC; current: hosts were read from the API since the daemon
// started.
func DecideDisc(h *metal3api.BareMetalHost, current bool) (refusal string) {
	switch {
	case h != nil && InService(h):
		return fmt.Sprintf("host %s is in service and boots its own disk", h.Name)
	case !current:
		return "the appliance is still starting and does not know its hosts yet"
	case h == nil:
		return "the node is no host yet"
	case !BootsFromDisc(h):
		return fmt.Sprintf("host %s boots from the network", h.Name)
	case IsErasing(h):
		return ""
	}

	switch state := h.Status.Provisioning.State; state {
	case metal3api.StateInspecting, metal3api.StatePreparing, metal3api.StateProvisioning, metal3api.StateDeprovisioning:
		return ""
	default:
		return fmt.Sprintf("host %s is %s, for which it boots no ramdisk", h.Name, cmp.Or(string(state), "not registered"))
	}
}

// BootsSecurely reports whether a host's firmware enforces Secure Boot, so that it loads nothing unsigned.
func BootsSecurely(h *metal3api.BareMetalHost) bool {
	return h.Spec.BootMode == metal3api.UEFISecureBoot || h.Annotations[label.SecureBoot] == "true"
}

// BootsFromDisc reports whether a host is installed by virtual media.
func BootsFromDisc(h *metal3api.BareMetalHost) bool {
	return BMCAddress(h.Spec.BMC.Address).HasVirtualMedia()
}

func wait(format string, args ...any) pxe.Boot {
	return pxe.Boot{Action: pxe.ActionWait, Reason: fmt.Sprintf(format, args...)}
}

func refuseBoot(format string, args ...any) pxe.Boot {
	return pxe.Boot{Action: pxe.ActionRefuse, Reason: fmt.Sprintf(format, args...)}
}
