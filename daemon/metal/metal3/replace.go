package metal3

import (
	"errors"
	"fmt"
	"strings"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
)

// Replacement is the exchange of the server that a node stands for by another one, and afterwards the record of the old
// one.
type Replacement struct {
	Host  string    `json:"host"` // UID of the old object
	Asked time.Time `json:"asked"`
	Ended time.Time `json:"ended,omitzero"` // zero: the old object is not gone yet

	Old HostBackup `json:"old"` // the old server as it was known last
	New string     `json:"new"` // what site.yaml has of the new one instead, for people
}

// IsOpen reports whether the old host is still there.
func (r Replacement) IsOpen() bool { return r.Host != "" && r.Ended.IsZero() }

// Clone is a copy that shares nothing.
func (r Replacement) Clone() Replacement { r.Old.Host = *r.Old.Host.DeepCopy(); return r }

// Sentence is how an open replacement stands, without the node's name.
func (r Replacement) Sentence() string {
	return "is replaced: the old server is left as it is, and its BareMetalHost is being removed"
}

// otherServer is what the site says of a node that is another server's than the one that its host stands for; "" if it
// is the same. A BMC at another address is another BMC, whose password the old one is not told, and Metal3 does not let
// a host boot from another MAC.
func otherServer(want, have *metal3api.BareMetalHost) string {
	var differ []string
	if now, was := want.Spec.BMC.Address, have.Spec.BMC.Address; was != "" && now != "" && now != was {
		differ = append(differ, fmt.Sprintf("the BMC %s, not %s", now, was))
	}
	if now, was := want.Spec.BootMACAddress, have.Spec.BootMACAddress; was != "" && now != "" && !strings.EqualFold(now, was) {
		differ = append(differ, fmt.Sprintf("the boot MAC %s, not %s", now, was))
	}
	return strings.Join(differ, " and ")
}

// holdForOther holds a node whose host stands for another server than the site names; nil: it does not.
func holdForOther(n NodeObjects, have *metal3api.BareMetalHost) *Decision {
	if n.Applied || have == nil || have.DeletionTimestamp != nil {
		return nil
	}
	other := otherServer(n.Host, have)
	if other == "" {
		return nil
	}
	d := holdFor(ReasonReplaced, "site.yaml gives it %s; if its server was replaced by another one, run: firstlightd replace "+
		"%s; if it was not, take that back", other, have.Name)
	d.OtherServer = other
	return &d
}

// isOfAnotherServer reports whether what the site says of a node is of another server than its host stands for: none of
// it is applied then, the new password of a BMC least of all.
func (p Progress) isOfAnotherServer() bool {
	return p.Reason == ReasonReplaced || p.Reason == ReasonReplacing
}

// CheckReplace prepares the replacement of the server that a node of the site stands for; have is its host, nil if it
// has none. The error is for people.
func CheckReplace(n NodeObjects, have *metal3api.BareMetalHost, rec HostBackup) (Replacement, error) {
	switch {
	case have == nil && rec.IsLive():
		return Replacement{}, errors.New("it is being taken over again from its record; try again when it has a BareMetalHost")
	case have == nil:
		return Replacement{}, errors.New("it has no BareMetalHost, so there is nothing to replace: what site.yaml names is installed")
	case n.Applied:
		return Replacement{}, errors.New("it is not in site.yaml: detach and delete its BareMetalHost, and apply another one")
	case n.Own != "":
		return Replacement{}, fmt.Errorf("its MAC %s is one of this appliance's own", n.Own)
	case have.DeletionTimestamp != nil:
		return Replacement{}, errors.New("its BareMetalHost is being removed")
	case IsErasing(have):
		return Replacement{}, errors.New("its disks are being erased")
	case have.Annotations[annotationPaused] == pausedBy:
		return Replacement{}, errors.New("it is being taken over again from its record; try again when that has ended")
	case have.Spec.ExternallyProvisioned || have.Status.Provisioning.State == metal3api.StateExternallyProvisioned:
		// Metal3 switches such a server off when its object goes, also one that is detached (checkInitiateDelete).
		return Replacement{}, errors.New("it is externally provisioned, and Metal3 would switch the old server off: move its " +
			"system, or switch it off, and delete its BareMetalHost")
	case IsPausedByOwner(have):
		return Replacement{}, errors.New("its owner has paused it; remove the annotation " + annotationPaused)
	}

	other := otherServer(n.Host, have)
	switch state := have.Status.Provisioning.State; {
	case other == "":
		return Replacement{}, errors.New("site.yaml names the server that it has; write the MAC and the BMC of the new " +
			"one there, and run: firstlightd reload")
	case !InService(have) && !isIdle(state) && state != metal3api.StateRegistering && state != metal3api.StateNone:
		return Replacement{}, fmt.Errorf("it is %s; try again when that has ended", stateName(state))
	}
	return Replacement{Host: string(have.UID), Old: newBackup(have), New: other}, nil
}

// DetachPatch has the operator forget a host that is in service, and its server left as it is.
func DetachPatch() Patch { return annotate(metal3api.DetachedAnnotation, "") }

// ReplaceStep is the next thing to do for a replacement.
type ReplaceStep string

const (
	ReplaceWait   ReplaceStep = "wait"   // the operator is at work
	ReplaceDetach ReplaceStep = "detach" // the operator is to forget the old server, without a word to its BMC
	ReplaceDelete ReplaceStep = "delete" // the old object goes
	ReplaceEnd    ReplaceStep = "end"    // it is gone
)

// NextReplace decides what comes next for an open replacement; have is the node's host in the API, nil if there is
// none. It is pure, and may be asked again after each power cut.
func NextReplace(r Replacement, have *metal3api.BareMetalHost) ReplaceStep {
	if have == nil || string(have.UID) != r.Host {
		return ReplaceEnd
	}

	_, asked := have.Annotations[metal3api.DetachedAnnotation]
	switch {
	case have.DeletionTimestamp != nil:
		return ReplaceWait
	case have.Status.OperationalStatus == metal3api.OperationalStatusDetached:
		return ReplaceDelete
	case InService(have) && !asked:
		return ReplaceDetach
	case InService(have):
		return ReplaceWait
	}
	return ReplaceDelete
}
