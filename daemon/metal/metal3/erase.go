package metal3

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/inspection"
	"firstlight.dev/firstlight/assets/label"
)

// Erasure is the erasing of some disks of one host, once, and afterwards the record of it.
type Erasure struct {
	Host  string       `json:"host"` // UID of its object
	Asked time.Time    `json:"asked"`
	Disks []ErasedDisk `json:"disks"` // those that were named, and no other
	// Lost is whether the host was found paused for an erasure of which there is no record any more. It has no disks: all
	// that is left to do is to make the host available again.
	Lost bool `json:"lost,omitempty"`
	// Tries is how often Ironic was told to have them erased. A server that loses its power meanwhile begins again.
	Tries   int       `json:"tries,omitempty"`
	Started time.Time `json:"started,omitzero"` // the last try
	// Aborted is why the appliance had Ironic give up the last try; "": it did not.
	Aborted string `json:"aborted,omitempty"`
	// Waits is what the next step waits for, if that is not what Ironic does.
	Waits string `json:"waits,omitempty"`
	// Refused is why the appliance did not let a disk be erased after all; it is not tried again then.
	Refused string `json:"refused,omitempty"`
	// Cancelled is when the owner took it back, before anything was written; zero: not.
	Cancelled time.Time `json:"cancelled,omitzero"`

	Failure string    `json:"failure,omitempty"` // why the last try failed, or why it ended without all of its disks erased
	Ended   time.Time `json:"ended,omitzero"`    // zero: it has not
}

// ErasedDisk is a disk that is to be erased, or was.
type ErasedDisk struct {
	WriteDisk
	Bytes  int64           `json:"bytes"`           // its size
	Holds  inspection.Disk `json:"holds"`           // what the inspection saw on it, which was given up
	Begun  time.Time       `json:"begun,omitzero"`  // the ramdisk was let write to it
	Erased time.Time       `json:"erased,omitzero"` // the ramdisk read it afterwards, and it was blank
	Method string          `json:"method,omitempty"`
	// Compared is how many blocks from all over the disk held data before, and were read again afterwards: each read as
	// something else. None were if the disk was blank, or locked so that nothing could be read.
	Compared int `json:"compared,omitempty"`
	// Unattached is how many namespaces of its drive are attached to no controller (NVMe): nobody named them, and they
	// were not erased. -1: the drive does not tell.
	Unattached int `json:"unattached,omitempty"`
}

// Ways to erase a disk, as the ramdisk reports them (overlays/ramdisk, firstlight_eraser.py).
const (
	MethodNVMe      = "nvme-format"
	MethodATA       = "ata-secure-erase"
	MethodOverwrite = "overwrite"
)

// maxEraseTries is how often a server may lose its power, or its agent, before somebody is asked.
const maxEraseTries = 5

// IsOpen reports whether an erasure has not ended.
func (e Erasure) IsOpen() bool { return e.Host != "" && e.Ended.IsZero() }

// HasFailed reports whether an erasure has ended with disks that are not erased, against the will of their owner.
func (e Erasure) HasFailed() bool { return !e.IsOpen() && len(e.Rest()) > 0 && e.Cancelled.IsZero() }

// Cancel takes an erasure back at a time. It fails once a ramdisk was let write to one of the disks: what is half erased
// is of no use to anybody. The error is for people.
func (e *Erasure) Cancel(now time.Time) error {
	i := slices.IndexFunc(e.Disks, func(d ErasedDisk) bool { return !d.Begun.IsZero() })
	switch {
	case e.Lost:
		return errors.New(e.Sentence())
	case i >= 0:
		return fmt.Errorf("disk %s is being erased since %s, or is already: it is too late, and all that was named is erased",
			describeWriteDisks([]WriteDisk{e.Disks[i].WriteDisk}), e.Disks[i].Begun.UTC().Format("2006-01-02 15:04:05 UTC"))
	case e.Cancelled.IsZero():
		e.Cancelled = now
	}
	return nil
}

// Clone is a copy that shares nothing.
func (e Erasure) Clone() Erasure { e.Disks = slices.Clone(e.Disks); return e }

// Rest are the disks that are still to be erased.
func (e Erasure) Rest() []WriteDisk {
	var rest []WriteDisk
	for _, d := range e.Disks {
		if d.Erased.IsZero() {
			rest = append(rest, d.WriteDisk)
		}
	}
	return rest
}

// IsErasing reports whether the operator is to leave a host alone while its disks are erased.
func IsErasing(h *metal3api.BareMetalHost) bool {
	return h.Annotations[annotationPaused] == label.Erasing
}

// EraseRequest is what an owner asks, and what is known of the host.
type EraseRequest struct {
	Host   *metal3api.BareMetalHost // nil: there is none
	Record HostBackup
	Found  Contents // what the last inspection found; nil: not known
	// Names are the disks, each by its serial number, WWN or device name. None stands for the root device alone.
	Names  []string
	HasBMC bool // the appliance can switch the server on itself
}

// CheckErase finds the disks that an owner asks to have erased. The error is for people, and says how the host can be
// given up where it is not. In this order: a host that is in service, or may be, is never erased; nor one that somebody
// uses or works on; nor a disk that could be mistaken for another one at the next boot.
func CheckErase(r EraseRequest) ([]ErasedDisk, error) {
	if r.Record.Unreadable != "" {
		return nil, fmt.Errorf("its record on DATA cannot be read, so it may be in service: %s", r.Record.Unreadable)
	}
	if r.Host == nil {
		return nil, errors.New("it has no BareMetalHost, so nothing is known of its disks; register and inspect it first")
	}
	if err := checkGivenUp(r); err != nil {
		return nil, err
	}
	if r.Host.Status.HardwareDetails == nil || r.Found == nil || wasInstalledSince(r.Host) {
		return nil, fmt.Errorf("it is not known what is on its disks now; have it inspected, and try again when it is "+
			"available: kubectl -n %s annotate bmh %s %s=", Namespace, r.Host.Name, metal3api.InspectAnnotationPrefix)
	}

	chosen, err := chooseErased(r.Host, r.Names)
	if err != nil {
		return nil, err
	}

	var disks []ErasedDisk
	for _, s := range chosen {
		name, holds, ok := r.Found.find(s)
		d := WriteDisk{Name: name, Serial: s.SerialNumber, WWN: s.WWN}
		switch {
		case !ok:
			return nil, fmt.Errorf("it is not known what its disk %s holds; have it inspected again", name)
		case holds.Unreadable != "":
			return nil, fmt.Errorf("its disk %s cannot be read: %s; replace it", name, holds.Unreadable)
		}
		if err := checkDistinct(d, r.Host.Status.HardwareDetails.Storage); err != nil {
			return nil, err
		}
		disks = append(disks, ErasedDisk{WriteDisk: d, Bytes: int64(s.SizeBytes), Holds: holds})
	}

	return disks, nil
}

// wasInstalledSince reports whether a host had a system after its last inspection: what that saw is not what its owner
// gives up now.
func wasInstalledSince(h *metal3api.BareMetalHost) bool {
	done := h.Status.OperationHistory
	return done.Provision.End.After(done.Inspect.Start.Time) || done.Deprovision.End.After(done.Inspect.Start.Time)
}

// checkGivenUp is nil if nobody uses a host and the operator has no work with it.
func checkGivenUp(r EraseRequest) error {
	h, state := r.Host, r.Host.Status.Provisioning.State
	switch {
	case InService(h) || r.Record.IsLive():
		return fmt.Errorf("it is in service; to give it up, take it out of site.yaml, if it is there, and run: "+
			"kubectl -n %[1]s annotate --overwrite bmh %[2]s %[3]s=%[4]s && kubectl -n %[1]s patch bmh %[2]s --type merge "+
			`-p '{"spec":{"image":null}}'; it can be erased when its BareMetalHost is available`,
			Namespace, h.Name, AllowWipe, NoImage)
	case h.Spec.ExternallyProvisioned:
		return errors.New("it is externally provisioned: the appliance leaves its disks alone")
	case h.DeletionTimestamp != nil:
		return errors.New("its BareMetalHost is being removed")
	case IsOnHold(h):
		return errors.New("its checks have not passed yet")
	case IsPausedByOwner(h):
		return errors.New("its owner has paused it; remove the annotation " + annotationPaused)
	case h.Spec.ConsumerRef != nil:
		return fmt.Errorf("%s %s uses it; remove it from its cluster first", h.Spec.ConsumerRef.Kind, h.Spec.ConsumerRef.Name)
	case h.Spec.Image != nil:
		return fmt.Errorf("it is being installed with image %q", imageURL(h.Spec.Image))
	case !isIdle(state):
		return fmt.Errorf("it is %s; it can be erased when it is available", stateName(state))
	case !r.HasBMC:
		return errors.New("it has no BMC, so the appliance cannot start the ramdisk on it that would erase its disks")
	}
	return nil
}

// chooseErased are the disks of a host by their names, or without names the one that its system is on.
func chooseErased(h *metal3api.BareMetalHost, names []string) ([]metal3api.Storage, error) {
	storage := h.Status.HardwareDetails.Storage
	if len(names) == 0 {
		hints := h.Spec.RootDeviceHints
		if hints == nil {
			hints = h.Status.Provisioning.RootDeviceHints
		}
		disk, err := OneDisk(hints, storage)
		if err != nil {
			return nil, fmt.Errorf("its root device is not known: %w; name the disks with --disk", err)
		}
		return []metal3api.Storage{disk}, nil
	}

	var chosen []metal3api.Storage
	for _, name := range names {
		var fit []metal3api.Storage
		for _, d := range storage {
			if name != "" && slices.Contains(append([]string{d.Name, d.SerialNumber, d.WWN}, d.AlternateNames...), name) {
				fit = append(fit, d)
			}
		}
		switch {
		case len(fit) != 1:
			return nil, fmt.Errorf("%q names %d of its disks: %s", name, len(fit), describeDisks(storage))
		case slices.ContainsFunc(chosen, func(d metal3api.Storage) bool { return d.Name == fit[0].Name }):
			return nil, fmt.Errorf("its disk %s is named twice", shortestName(fit[0]))
		}
		chosen = append(chosen, fit[0])
	}
	return chosen, nil
}

// checkDistinct is nil if a disk will be found again at the next boot, whatever its device is called then.
func checkDistinct(d WriteDisk, all []metal3api.Storage) error {
	if d.Serial == "" && d.WWN == "" && len(all) > 1 {
		return fmt.Errorf("its disk %s has neither serial number nor WWN: it could be mistaken for another one", d.Name)
	}
	fit := 0
	for _, s := range all {
		if d.is(s) {
			fit++
		}
	}
	if fit != 1 {
		return fmt.Errorf("its disk %s cannot be told from another one with serial number %q and WWN %q", d.Name, d.Serial,
			d.WWN)
	}
	return nil
}

// SeenDisk is a disk that a ramdisk is about to erase, or has erased, as it sees it.
type SeenDisk struct {
	WriteDisk
	Holds  inspection.Disk
	Bytes  int64 // its size
	Others int   // how many more disks the server has
}

// CheckErasedDisk decides, right before the first byte, whether a ramdisk may erase a disk; which of the erasure's it
// is. What it holds now must be nothing, what the owner gave up, or what an earlier try has left of it.
func CheckErasedDisk(e Erasure, h *metal3api.BareMetalHost, d SeenDisk) (int, error) {
	holds := d.Holds
	switch {
	case !e.IsOpen() || e.Host != string(h.UID) || e.Refused != "":
		return -1, fmt.Errorf("no disk of host %s is to be erased", h.Name)
	case !e.Cancelled.IsZero():
		return -1, fmt.Errorf("the owner of host %s has cancelled its erasure", h.Name)
	case InService(h) || hasWork(h) || !isIdle(h.Status.Provisioning.State) || !IsErasing(h):
		return -1, fmt.Errorf("host %s is %s and not given up to be erased", h.Name, stateName(h.Status.Provisioning.State))
	}

	i := slices.IndexFunc(e.Disks, func(w ErasedDisk) bool { return w.isNow(d.WriteDisk) })
	if i < 0 {
		return -1, fmt.Errorf("disk %s (serial number %q) is not one that is to be erased", d.Name, d.Serial)
	}
	if err := checkNameless(e.Disks[i], d); err != nil {
		return -1, err
	}
	switch {
	case holds.Unreadable != "" && (e.Disks[i].Begun.IsZero() || !e.Disks[i].Erased.IsZero()):
		// One that was begun may be locked: a drive that lost its power while it erased itself is (ATA), until that is done.
		return -1, fmt.Errorf("disk %s cannot be read: %s; replace it", d.Name, holds.Unreadable)
	case holds.IsBlank(), e.Disks[i].Erased.IsZero() && !e.Disks[i].Begun.IsZero(),
		e.Disks[i].Erased.IsZero() && holds.Fingerprint != "" && holds.Fingerprint == e.Disks[i].Holds.Fingerprint:
		return i, nil
	}
	return -1, fmt.Errorf("disk %s is not as inspection saw it, it holds: %s (%s)", d.Name, strings.Join(holds.Kinds, ", "),
		holds.Fingerprint)
}

// CheckReport finds the disk of an erasure that a ramdisk says it has erased. It was let write to it: whatever became of
// the host since, the disk is erased.
func CheckReport(e Erasure, h *metal3api.BareMetalHost, d WriteDisk) (int, error) {
	i := slices.IndexFunc(e.Disks, func(w ErasedDisk) bool { return w.isNow(d) })
	if !e.IsOpen() || e.Host != string(h.UID) || i < 0 || e.Disks[i].Begun.IsZero() {
		return -1, fmt.Errorf("disk %s (serial number %q) of host %s was not let be erased", d.Name, d.Serial, h.Name)
	}
	return i, nil
}

// unknownData is what a disk holds that was overwritten in part (overlays/ramdisk, firstlight.py).
const unknownData = "data of an unknown kind"

// checkNameless is nil if a disk without serial number and WWN can be no other than the one that was given up: it was the
// only one of its server. Another disk may have come, or taken its place, even after an earlier try has begun.
func checkNameless(w ErasedDisk, now SeenDisk) error {
	half := now.Holds.IsBlank() || now.Holds.Unreadable == "" && slices.Equal(now.Holds.Kinds, []string{unknownData})
	switch {
	case w.Serial != "" || w.WWN != "":
		return nil
	case now.Others > 0:
		return fmt.Errorf("disk %s has neither serial number nor WWN, and the server has %d more disks now: it could be "+
			"another one", now.Name, now.Others)
	case now.Bytes != w.Bytes:
		return fmt.Errorf("disk %s has neither serial number nor WWN, and has %d bytes, not %d: it is another one", now.Name,
			now.Bytes, w.Bytes)
	case !w.Begun.IsZero() && !half && now.Holds.Fingerprint != w.Holds.Fingerprint:
		return fmt.Errorf("disk %s has neither serial number nor WWN, and does not hold what an erasure leaves: it could be "+
			"another one; it holds: %s", now.Name, cmp.Or(strings.Join(now.Holds.Kinds, ", "), now.Holds.Unreadable))
	}
	return nil
}

// isNow reports whether a disk of this boot is the one that is to be erased: its name alone says nothing if it has a
// serial number or a WWN.
func (d ErasedDisk) isNow(now WriteDisk) bool {
	if d.WWN == "" && d.Serial == "" {
		return now.WWN == "" && now.Serial == "" && now.Name == d.Name
	}
	return d.WWN == now.WWN && d.Serial == now.Serial
}
