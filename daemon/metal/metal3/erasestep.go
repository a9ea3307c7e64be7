package metal3

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/label"
)

// EraseStep is the next thing to do for an erasure.
type EraseStep string

const (
	EraseWait    EraseStep = "wait"    // something comes to its end without help
	ErasePause   EraseStep = "pause"   // the operator is to leave the host alone
	EraseResume  EraseStep = "resume"  // the operator is to register the host with Ironic again
	EraseManage  EraseStep = "manage"  // Ironic is to take the node from those that are available
	EraseClean   EraseStep = "clean"   // Ironic is to have the rest of the disks erased
	EraseAbort   EraseStep = "abort"   // the agent is gone: Ironic need not wait for it
	EraseRecover EraseStep = "recover" // Ironic is to forget that cleaning failed
	EraseProtect EraseStep = "protect" // Ironic is to clean no disk on the way back
	EraseProvide EraseStep = "provide" // Ironic is to make the node available again
	EraseRelease EraseStep = "release" // all is done: the operator gets the host back, and inspects it
	EraseEnd     EraseStep = "end"     // the host is not the one any more that was to be erased
)

// EraseNode is what matters here of Ironic's record of the host.
type EraseNode struct {
	State string // provision_state
	// Silent is whether the agent called in this try and then stopped to, and IsOff whether the server has no power now,
	// as its BMC says. Ironic does not ask a BMC for the power while it waits for an agent.
	Silent, IsOff bool
	// Quiet is since when the agent has not called, if that is longer than it should be; zero: it calls, or boots.
	Quiet time.Time
	// BMC is why its BMC takes no orders now, so that no server can be started; "": it takes them.
	BMC         string
	LastError   string
	Maintenance bool
	// Cleans is whether Ironic would erase disks on the way to "available".
	Cleans bool
	// Unregistered is whether the operator has still to tell Ironic of it, as after Ironic lost its database: a host that
	// is paused meanwhile would stay so, and no ramdisk be started.
	Unregistered bool
}

// Waits is what a node waits for that no one but people may end; "": nothing.
func (n *EraseNode) Waits() string {
	switch {
	case n == nil:
	case n.State == "manageable" && n.BMC != "":
		return "it waits until its BMC answers: " + n.BMC
	case n.State == "clean wait" && !n.Quiet.IsZero():
		return "its agent has not called since " + n.Quiet.UTC().Format("15:04:05 UTC") +
			"; its server is started again when its BMC says that it is off, and otherwise three minutes after that"
	}
	return ""
}

// NextErase decides what comes next for an open erasure: h is the host in the API, nil if there is none, and node is
// Ironic's, nil if it has none. The sentence is what is waited for, or why the erasure ends. It is pure, and may be
// asked again after each power cut: what was done shows in host and node.
func NextErase(e Erasure, h *metal3api.BareMetalHost, node *EraseNode) (EraseStep, string) {
	if h == nil || string(h.UID) != e.Host {
		return EraseEnd, "its BareMetalHost was removed meanwhile"
	}

	// A node that Ironic was told to clean is brought back before the erasure ends: while the host is paused, nobody else
	// sees to that.
	taken := node != nil && !node.Unregistered && node.State != "available" && isIdle(h.Status.Provisioning.State)
	_, paused := h.Annotations[annotationPaused]
	paused = paused && !IsErasing(h)
	switch {
	case InService(h):
		return EraseEnd, "it came into service meanwhile"
	case paused && !taken:
		return EraseEnd, pausedMeanwhile
	case (node == nil || node.Unregistered) && IsErasing(h):
		return EraseResume, "Ironic does not know it any more"
	case !IsErasing(h) && (e.Lost || !e.Cancelled.IsZero()) && !taken:
		return EraseEnd, ""
	case node == nil || node.Unregistered:
		return EraseWait, "it is being registered with Ironic"
	case paused:
		return eraseOn(e, node, aimStop)
	case h.DeletionTimestamp != nil && isAtRest(node.State):
		return EraseRelease, "its BareMetalHost is being removed"
	case !IsErasing(h) && hasWork(h):
		return EraseEnd, "somebody gave it work meanwhile"
	case !IsErasing(h) && !isIdle(h.Status.Provisioning.State):
		return EraseWait, "it is " + stateName(h.Status.Provisioning.State)
	case !IsErasing(h):
		return ErasePause, ""
	}

	if !e.Cancelled.IsZero() {
		return eraseOn(e, node, aimStop)
	}
	if len(e.Rest()) > 0 && e.Refused == "" && e.Tries < maxEraseTries && !hasWork(h) {
		return eraseOn(e, node, aimErase)
	}
	return eraseOn(e, node, aimEnd)
}

// eraseAim is what an erasure comes to.
type eraseAim int

const (
	aimErase eraseAim = iota // the rest of its disks is erased
	aimEnd                   // what Ironic does now may end, and then it does
	aimStop                  // it ends as soon as no disk is half erased
)

// pausedMeanwhile is why an erasure ends that the owner of the host has paused.
const pausedMeanwhile = "its owner paused it meanwhile"

// eraseOn is the next step with a node that nobody else works on.
func eraseOn(e Erasure, node *EraseNode, aim eraseAim) (EraseStep, string) {
	switch node.State {
	case "available":
		if aim == aimErase {
			return EraseManage, ""
		}
		return EraseRelease, ""
	case "manageable":
		switch {
		case node.Maintenance:
			return EraseRecover, ""
		case aim == aimErase && node.BMC != "":
			return EraseWait, node.Waits() // a try without a BMC would only be lost
		case aim == aimErase:
			return EraseClean, ""
		case node.Cleans:
			return EraseProtect, ""
		}
		return EraseProvide, ""
	case "clean failed":
		return EraseRecover, cmp.Or(e.Aborted, node.LastError, "Ironic does not say why")
	case "clean wait":
		switch {
		case node.IsOff:
			return EraseAbort, "its server lost its power, as its BMC says"
		case node.Silent:
			return EraseAbort, "its agent does not call any more"
		case aim == aimStop && !e.IsWriting():
			return EraseAbort, "no disk of it is to be erased any more"
		}
	}
	return EraseWait, "Ironic says that it is in state " + node.State
}

// IsWriting reports whether a ramdisk was let write to a disk and has not said yet that it is blank. Erasures of which the
// record was lost may be.
func (e Erasure) IsWriting() bool {
	return e.Lost ||
		slices.ContainsFunc(e.Disks, func(d ErasedDisk) bool { return !d.Begun.IsZero() && d.Erased.IsZero() })
}

// hasWork reports whether a host is meant for something else than to be erased.
func hasWork(h *metal3api.BareMetalHost) bool {
	return h.Spec.Image != nil || h.Spec.ConsumerRef != nil
}

// isAtRest reports whether Ironic has nothing to do with a node.
func isAtRest(state string) bool {
	return state == "available" || state == "manageable" || state == "clean failed"
}

// PausePatch has the operator leave a host alone while its disks are erased. It fails if the host changed since.
func PausePatch(h *metal3api.BareMetalHost) Patch {
	return Patch{"metadata": Patch{
		"resourceVersion": h.ResourceVersion,
		"annotations":     Patch{annotationPaused: label.Erasing},
	}}
}

// ReleasePatch gives a host back to the operator, and has it inspected again if asked. It fails if the host changed
// since: its owner may have put a pause of their own in the place of this one.
func ReleasePatch(h *metal3api.BareMetalHost, inspect bool) Patch {
	annotations := Patch{annotationPaused: nil}
	if inspect {
		annotations[metal3api.InspectAnnotationPrefix] = ""
	}
	return Patch{"metadata": Patch{"resourceVersion": h.ResourceVersion, "annotations": annotations}}
}

// Sentence is how an erasure stands, without the node's name.
func (e Erasure) Sentence() string {
	rest := e.Rest()
	switch {
	case e.Lost && e.IsOpen():
		return "was paused to be erased, and the record of that was lost; it is made available again, and nothing is erased"
	case e.Lost:
		return "was paused to be erased, and the record of that was lost: which of its disks were erased is not known"
	case !e.Cancelled.IsZero() && e.IsOpen():
		return "is not erased: its owner has cancelled that before anything was written; it is made available again"
	case !e.Cancelled.IsZero():
		return "was not erased: its owner cancelled that on " + e.Cancelled.UTC().Format("2006-01-02 15:04:05 UTC") +
			", before anything was written"
	case e.IsOpen():
		text := fmt.Sprintf("is being erased, %d of %d disks done; next %s", len(e.Disks)-len(rest), len(e.Disks),
			describeWriteDisks(rest[:min(1, len(rest))]))
		if len(rest) == 0 {
			text = fmt.Sprintf("is erased, %d disks, and is made available again", len(e.Disks))
		}
		if e.Failure != "" {
			text += "; it is tried again, before that it failed: " + e.Failure
		}
		if e.Waits != "" {
			text += "; " + e.Waits
		}
		return text
	case len(rest) > 0:
		return fmt.Sprintf("was not erased, %d of %d disks are left (%s): %s", len(rest), len(e.Disks),
			describeWriteDisks(rest), e.Failure)
	}

	var done []string
	for _, d := range e.Disks {
		text := fmt.Sprintf("%s on %s by %s", describeWriteDisks([]WriteDisk{d.WriteDisk}),
			d.Erased.UTC().Format("2006-01-02 15:04:05 UTC"), MethodText(d.Method))
		if d.Compared > 0 {
			text += fmt.Sprintf(" (none of %d blocks with data reads as before)", d.Compared)
		}
		switch {
		case d.Unattached > 0:
			text += fmt.Sprintf(", and %d namespaces of its drive that are not attached were not erased", d.Unattached)
		case d.Unattached < 0:
			text += ", and its drive does not tell whether it has namespaces that are not attached"
		}
		done = append(done, text)
	}
	return "was erased: " + strings.Join(done, "; ")
}

// MethodText is how a disk was erased, in the words of people who own disks.
func MethodText(method string) string {
	switch method {
	case MethodNVMe:
		return "the drive's own format with secure erase (NVMe)"
	case MethodATA:
		return "the drive's own secure erase (ATA)"
	case MethodOverwrite:
		return "overwriting it"
	}
	return "the agent"
}

func describeWriteDisks(disks []WriteDisk) string {
	var out []string
	for _, d := range disks {
		text := d.Name
		if d.Serial != "" {
			text += " serialNumber " + d.Serial
		} else if d.WWN != "" {
			text += " wwn " + d.WWN
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}
