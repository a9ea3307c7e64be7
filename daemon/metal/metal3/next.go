package metal3

import (
	"fmt"
	"reflect"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/label"
)

// Step is the next thing to do with one node of the site.
type Step string

const (
	StepCreate   Step = "create"   // the host without its image: it is registered and inspected
	StepWait     Step = "wait"     // something is going on that comes to its end by itself
	StepHold     Step = "hold"     // a person must decide; nothing is written until then
	StepRegister Step = "register" // one that was applied passed its pre-flight: it is registered and inspected
	StepRelease  Step = "release"  // its owner deletes it: the operator may go on

	// StepPreflight stands in for create and image while Site.PreflightGate says no.
	StepPreflight Step = "preflight"
	// StepAgent stands in for image while Site.AgentsDue names it.
	StepAgent Step = "agent"

	StepImage   Step = "image"   // give it its image: it is installed
	StepApply   Step = "apply"   // keep its image, apply the rest: addresses, credentials, labels
	StepRestore Step = "restore" // the API has lost a host in service: create it from its record, paused, with its status
	StepResume  Step = "resume"  // it came back as it was: give it to the operator again
	StepForget  Step = "forget"  // it was adopted after its inspection: its host goes, and comes back as one in service
)

// Reason says why nothing is done with a node, for code; people get the sentence.
type Reason string

// The reasons of StepHold, of some of StepWait, and of failures.
const (
	ReasonDecision      Reason = "decision"       // a person must decide
	ReasonDiskAmbiguous Reason = "disk-ambiguous" // its hints fit no disk, or several
	ReasonDiskNotEmpty  Reason = "disk-not-empty" // its disk holds data, or it is not known what
	ReasonInstalled     Reason = "installed"      // a disk says that an appliance installed the server
	ReasonUnsigned      Reason = "unsigned"       // the site requires signed images, and its image is not
	ReasonBackup        Reason = "backup"         // its backup on DATA is missing, or the API does not agree with it
	ReasonTorn          Reason = "torn"           // its backup on DATA cannot be read
	ReasonInvalid       Reason = "invalid"        // what the site says of it cannot become objects
	ReasonFailed        Reason = "failed"         // the last try to take its next step
	ReasonErasing       Reason = "erasing"        // its owner has disks of it erased
	ReasonReplaced      Reason = "replaced"       // its host stands for another server than the site names
	ReasonReplacing     Reason = "replacing"      // its owner has said so: that host is being removed
)

// Decision is the next step of a node. Where that is to do nothing it says why.
type Decision struct {
	Step     Step
	Reason   Reason // "": nothing but time is needed
	Sentence string // what is waited for, or what blocks the node

	// Fingerprint is what would have to be lost for the node to go on, "" if that is not what blocks it.
	Fingerprint string
	// OtherServer is what the site says of the node that is another server's than the one that it stands for, for people;
	// "" if that is not what blocks it.
	OtherServer string
}

func holdFor(reason Reason, format string, args ...any) Decision {
	return Decision{Step: StepHold, Reason: reason, Sentence: fmt.Sprintf(format, args...)}
}

func waitFor(reason Reason, format string, args ...any) Decision {
	return Decision{Step: StepWait, Reason: reason, Sentence: fmt.Sprintf(format, args...)}
}

// Next decides the step for a node: n is what the site describes, have the host in the API
// or nil, rec what the appliance remembers, found what inspection found on its
// disks, nil if that is not known.
//
// A host is first created without an image, because only after inspection it is known
// whether its hints name exactly one disk, and whether that disk is empty. What is on its disks matters
// for an idle host only.
func Next(n NodeObjects, have *metal3api.BareMetalHost, rec HostBackup, found Contents) Decision {
	want := n.Host
	if n.Own != "" {
		return holdFor(ReasonDecision, "its MAC %s is one of this appliance's own, which never installs itself; "+
			"take the node out of site.yaml or correct its MAC", n.Own)
	}
	if rec.Unreadable != "" && (have == nil || !InService(have) && have.Spec.Image == nil) {
		return holdFor(ReasonTorn, "its record on DATA cannot be read, so it may be in service: %s; if it is, run: "+
			"firstlightd adopt %s; if it never was, remove that file", rec.Unreadable, want.Name)
	}
	if have == nil {
		if rec.IsLive() {
			return Decision{Step: StepRestore}
		}
		return Decision{Step: StepCreate}
	}

	state := have.Status.Provisioning.State
	if have.Annotations[annotationPaused] == pausedBy {
		if state == metal3api.StateNone && rec.IsLive() {
			return Decision{Step: StepRestore} // it was created, and its status not written yet
		}
		if err := CheckResumable(have, rec); err != nil {
			return waitFor(ReasonBackup, "%v", err)
		}
		return Decision{Step: StepResume}
	}
	if d := holdForOther(n, have); d != nil {
		return *d
	}
	if have.DeletionTimestamp != nil {
		return waitFor("", "its owner is removing it; afterwards it is created again, because it is still in site.yaml")
	}
	if rec.isAdopted() && !InService(have) && have.Spec.Image == nil {
		return Decision{Step: StepForget}
	}

	wipe := allowsWipe(have, imageURL(want.Spec.Image))
	failed := have.Spec.Image != nil && !InService(have) && have.Status.ErrorMessage != ""
	switch {
	case imageURL(have.Spec.Image) == imageURL(want.Spec.Image) && !(failed && !reflect.DeepEqual(
		have.Spec.Image, want.Spec.Image,
	)):
		return Decision{Step: StepApply}
	case failed:
		return Decision{Step: StepImage} // its owner has mended the image in the site, or its digest
	case InService(have) && !wipe:
		return holdFor(ReasonDecision, "it is in service with image %q, site.yaml names %q; "+
			"to install that and lose what is on its disk, run: %s",
			imageURL(have.Spec.Image), imageURL(want.Spec.Image), wipeCommand(have, want))
	case have.Spec.Image != nil && !wipe:
		return holdFor(ReasonDecision, "it is being installed with image %q, site.yaml names %q now: "+
			"that comes when this installation fails; to have it anyway, run: %s",
			imageURL(have.Spec.Image), imageURL(want.Spec.Image), wipeCommand(have, want))
	}

	switch {
	case state == metal3api.StateExternallyProvisioned:
		return holdFor(ReasonDecision, "it is externally provisioned: the appliance never installs it")
	case state == metal3api.StateUnmanaged && have.Spec.BMC.Address != want.Spec.BMC.Address:
		return Decision{Step: StepApply}
	case state == metal3api.StateUnmanaged && n.Applied:
		return holdFor(ReasonDecision, "its BareMetalHost has no BMC: Metal3 does nothing with it; "+
			"give it spec.bmc, or delete it and name the server with its MAC in site.yaml")
	case state == metal3api.StateUnmanaged:
		return holdFor(ReasonDecision, "it has no BMC in site.yaml: the appliance cannot switch it on")
	case !isIdle(state):
		return waitFor("", "it is %s", stateName(state))
	}

	if have.Status.HardwareDetails == nil {
		return waitFor("", "it is not inspected yet")
	}

	disk, err := OneDisk(want.Spec.RootDeviceHints, have.Status.HardwareDetails.Storage)
	if err != nil {
		return holdFor(ReasonDiskAmbiguous, "%v", err)
	}
	if size := int64(disk.SizeBytes); size < n.Need {
		return holdFor(ReasonDecision, "its disk %s has %d MiB, the image needs %d; name a larger disk with rootDevice in site.yaml",
			shortestName(disk), size>>20, n.Need>>20)
	}
	if rec.Host.UID != have.UID && !wipe {
		if rec.IsLive() {
			return holdFor(ReasonDecision, "it was in service before its BareMetalHost was made again; "+
				"to install it again and lose what is on its disk, run: %s", wipeCommand(have, want))
		}
		// Once it is in service the record may be all that is left of it.
		return waitFor(ReasonBackup, "host %s has no record on DATA yet, and gets no image before; is DATA full or read-only?",
			have.Name)
	}
	if wipe {
		return Decision{Step: StepImage}
	}
	if no := checkConsent(found, install{
		Host:    have.Name,
		Site:    want.Labels[LabelSite],
		Disk:    disk,
		Disks:   have.Status.HardwareDetails.Storage,
		Consent: want.Annotations[Overwrite],
		Given:   have.Annotations[Overwrite],
		Before:  rec.Installed,
		Machine: IsMachines(have),
	}); no != nil {
		return *no
	}

	return Decision{Step: StepImage}
}

// IsMachines reports whether a machine of Cluster API has claimed a host.
func IsMachines(h *metal3api.BareMetalHost) bool {
	return h.Spec.ConsumerRef != nil && h.Spec.ConsumerRef.Kind == "Metal3Machine"
}

// MaySwitchOn reports whether the next step of a node may be one that has it switched on, whatever its backup and its
// disks say: StepCreate, StepRegister or StepImage. have is nil if it has no host yet. One on hold stays in the state in
// which it was paused until such a step releases it.
func MaySwitchOn(have *metal3api.BareMetalHost) bool {
	isHeld := have != nil && IsOnHold(have)
	have = withoutHold(have)
	switch {
	case have == nil:
		return true
	case have.Annotations[AllowWipe] != "":
		return true
	case InService(have):
		return false
	case isHeld:
		return true
	case have.Spec.Image != nil:
		return have.Status.ErrorMessage != ""
	}
	return isIdle(have.Status.Provisioning.State)
}

// allowsWipe reports whether the owner of a host has given up what is on its disks for an image: the annotation names
// its URL. It is spent when the host has that image (Reconciler.spendConsent).
func allowsWipe(h *metal3api.BareMetalHost, image string) bool {
	return image != "" && h.Annotations[AllowWipe] == image
}

func wipeCommand(have, want *metal3api.BareMetalHost) string {
	return fmt.Sprintf("kubectl -n %s annotate --overwrite bmh %s %s=%s", Namespace, have.Name, AllowWipe,
		imageURL(want.Spec.Image))
}

// isIdle tells whether a host waits for an image, or for another one.
func isIdle(state metal3api.ProvisioningState) bool {
	return state == metal3api.StateReady || state == metal3api.StateAvailable || state == metal3api.StateProvisioned
}

// ObjectForStep is the object to apply for a step. Only StepImage gives an image that the host does
// not have yet, and a host in service keeps the very image object it has.
func ObjectForStep(step Step, want, have *metal3api.BareMetalHost) *metal3api.BareMetalHost {
	h := want.DeepCopy()
	if h.Spec.RootDeviceHints == nil && have != nil {
		// Without hints the operator means /dev/sda. The only disk is named by what it is.
		h.Spec.RootDeviceHints = have.Spec.RootDeviceHints.DeepCopy()
		if step == StepImage && have.Status.HardwareDetails != nil {
			h.Spec.RootDeviceHints = onlyDisk(have.Status.HardwareDetails.Storage)
		}
	}

	switch {
	case step == StepImage:
	case have == nil:
		h.Spec.Image = nil
	default:
		h.Spec.Image = have.Spec.Image.DeepCopy()
	}

	if h.Annotations == nil {
		h.Annotations = map[string]string{}
	}
	// Only StepImage clears an image: one that the host has may be somebody else's since.
	switch {
	case step == StepImage && h.Spec.Image != nil:
		h.Annotations[label.Cleared] = ClearedImage(h.Spec.Image)
	case have != nil && have.Annotations[label.Cleared] != "":
		h.Annotations[label.Cleared] = have.Annotations[label.Cleared]
	default:
		h.Annotations[label.Cleared] = clearedRegistration
	}

	return h
}

func stateName(s metal3api.ProvisioningState) string {
	if s == metal3api.StateNone {
		return "not registered yet"
	}
	return string(s)
}
