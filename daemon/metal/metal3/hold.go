package metal3

import (
	"fmt"
	"strings"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/utils/ptr"

	"firstlight.dev/firstlight/assets/label"
)

// clearedRegistration is the value of label.Cleared by which a host may be registered and inspected; what ClearedImage
// returns allows that image besides.
const clearedRegistration = "registration"

// ClearedImage is the value of label.Cleared by which a host may be installed with an image: TYPE:CHECKSUM FORMAT URL, each
// as the host has it. So another checksum or format at the same URL is checked again. The admission policy says the same
// in CEL.
func ClearedImage(i *metal3api.Image) string {
	return fmt.Sprintf("%s:%s %s %s", i.ChecksumType, i.Checksum, ptr.Deref(i.DiskFormat, ""), i.URL)
}

// AwaitSecrets is for how long after a host was applied the Secret of its user data may follow. Then the host is
// installed with the appliance's part alone: nobody may be there to apply another object.
const AwaitSecrets = 10 * time.Minute

// IsOnHold reports whether the admission policy paused a host until it was checked (AdmissionPolicies).
func IsOnHold(h *metal3api.BareMetalHost) bool { return h.Annotations[annotationPaused] == label.Hold }

// IsUnregistered reports whether a host is on hold and the operator has never acted on it: nothing was powered on.
func IsUnregistered(h *metal3api.BareMetalHost) bool {
	return IsOnHold(h) && h.Status.Provisioning.State == metal3api.StateNone
}

// withoutHold is a host as it is for Metal3 until it is released: without the image that it waits for. nil stays nil.
func withoutHold(h *metal3api.BareMetalHost) *metal3api.BareMetalHost {
	if h == nil || !IsOnHold(h) {
		return h
	}

	h = h.DeepCopy()
	delete(h.Annotations, annotationPaused)
	if !InService(h) || h.Annotations[AllowWipe] != "" {
		h.Spec.Image = nil
	}

	return h
}

// isFresh reports whether a host was applied and nothing was done with it: neither the operator nor its owner since.
func isFresh(h *metal3api.BareMetalHost) bool {
	return h != nil && IsUnregistered(h) && h.DeletionTimestamp == nil
}

// isChanging reports whether a host is on hold because its image was changed while it was being installed, or has a mark
// of an earlier version. Its disk was looked at before, and the ramdisk asks again before it writes.
func isChanging(h *metal3api.BareMetalHost) bool {
	return h != nil && IsOnHold(h) && h.DeletionTimestamp == nil &&
		(h.Status.Provisioning.State == metal3api.StateProvisioning || isUnderway(h) && isClearedByURL(h))
}

// isClearedByURL reports whether a host was cleared for its image by an earlier version, whose mark was the image's URL.
func isClearedByURL(h *metal3api.BareMetalHost) bool {
	return h.Spec.Image != nil && h.Annotations[label.Cleared] == h.Spec.Image.URL
}

// decideChanging decides about a host that isChanging, for which an image of that URL is wanted now. Metal3 would take one
// of another URL for what is on the disk, when the one that is being written is complete.
func decideChanging(wanted string, have *metal3api.BareMetalHost) Decision {
	mark := have.Annotations[label.Cleared]
	cleared := mark[strings.LastIndex(mark, " ")+1:]
	if cleared == "" || cleared == clearedRegistration || cleared == wanted || have.Status.ErrorMessage != "" {
		return Decision{Step: StepImage}
	}
	if now := have.Spec.Image; now != nil && (mark == ClearedImage(now) || mark == now.URL) {
		return Decision{Step: StepRelease} // site.yaml names another one since: that is for Next to say
	}
	return holdFor(ReasonDecision, "it is being installed with image %q, and %q is named now, which Metal3 would take for "+
		"what is on its disk; give spec.image as it was, and change it when the host is in service", cleared, wanted)
}

// isUnderway reports whether the operator does something with a host that comes to its end by itself, before an image is
// written: not while the host is paused.
func isUnderway(h *metal3api.BareMetalHost) bool {
	switch h.Status.Provisioning.State {
	case metal3api.StateRegistering, metal3api.StateInspecting, metal3api.StatePreparing, metal3api.StateDeprovisioning:
		return true
	}
	return false
}

// decide is Next for any host, on hold or not. A host on hold is inspected before it is known whether it may have its
// image, so it is registered without.
func decide(n NodeObjects, have *metal3api.BareMetalHost, rec HostBackup, found Contents) Decision {
	switch {
	case rec.isAdopted():
	case isFresh(have) && rec.IsLive():
		return Decision{Step: StepForget} // the API had lost it, and someone applied it again: the record says how it is
	case isFresh(have) && rec.Unreadable != "":
	case n.Own != "": // Next holds it
	case n.SameBMC != "":
		return holdFor(ReasonDecision, "its BMC is also that of host %s; "+
			"correct spec.bmc.address of the wrong one, or delete that host", n.SameBMC)
	case have != nil && IsOnHold(have) && have.DeletionTimestamp != nil:
		return Decision{Step: StepRelease}
	case have != nil && IsOnHold(have) && !InService(have) &&
		(have.Status.HardwareDetails == nil || isUnderway(have) && !isChanging(have)):
		return Decision{Step: StepRegister} // its image is put aside until it is at rest
	case n.Applied && have != nil && n.Host.Spec.Image == nil && IsOnHold(have):
		return Decision{Step: StepRelease} // its owner took the image back
	case n.Applied && have != nil && n.Host.Spec.Image == nil:
		return Decision{Step: StepApply} // it waits for whoever gives it an image
	}

	d := Next(n, withoutHold(have), rec, found)
	if d.Step == StepWait && isChanging(have) && n.Host.Spec.Image != nil {
		d = decideChanging(n.Host.Spec.Image.URL, have)
	}
	if n.Unsigned != "" && d.Step == StepImage {
		return holdFor(ReasonUnsigned, "%s", n.Unsigned)
	}
	if n.AwaitedSecret != "" && d.Step == StepImage {
		return holdFor(ReasonDecision, "its spec.userData names Secret %s, which does not exist; apply it: "+
			"%s after this host was applied it is installed without", n.AwaitedSecret, AwaitSecrets)
	}
	named := n.Host.Labels[label.Cluster] != "" // the site gives it to Cluster API, and says overwrite itself
	if n.Applied && !named && (d.Reason == ReasonDiskNotEmpty || d.Reason == ReasonInstalled) {
		d.Sentence += fmt.Sprintf("; this host is not in site.yaml: give that value of overwrite to its annotation %s",
			Overwrite)
		if rec.Installed && IsMachines(have) {
			d.Sentence += ", or " + Released + " for all that machines leave on it"
		}
	}

	return d
}
