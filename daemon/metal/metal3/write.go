package metal3

import (
	"fmt"
	"strings"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/inspection"
)

// Write is what a ramdisk says of the disk that it is about to write to, and what is known of that.
type Write struct {
	Host   *metal3api.BareMetalHost
	Disk   WriteDisk
	Holds  inspection.Disk // what it holds now
	Seen   Contents        // what the host's last inspection found, on which its image was decided; nil: not known
	Permit Permit
}

// WriteDisk is a disk as the agent names it in this boot. Serial and WWN may be empty.
type WriteDisk struct {
	Name   string `json:"name"`
	Serial string `json:"serial"`
	WWN    string `json:"wwn"`
}

// Permit is what was allowed before for the installation of one host, until it is in service.
type Permit struct {
	Host  string     `json:"host"`            // UID of its object
	Wipe  string     `json:"wipe,omitempty"`  // URL of the image for which its owner has given up whatever is on its disk
	Begun *WriteDisk `json:"begun,omitempty"` // that was written to: what is on it now is of this installation
}

// covers reports whether a permit is for a disk of a host as it is being installed, with what it holds now. One with
// half of another image on it is covered, too: its owner has corrected which image it is to have. A disk that was marked
// by another installation was not begun by this one, whoever said so: that a try had begun is the word of whoever had
// the token of that boot.
func (p Permit) covers(h *metal3api.BareMetalHost, d WriteDisk, holds inspection.Disk) bool {
	image := imageURL(h.Spec.Image)
	isOwn := holds.Mark == nil || holds.Mark.ID == string(h.UID)
	switch {
	case p.Host != string(h.UID):
		return false
	case p.Wipe == image && image != "":
		return true
	}
	return p.Begun != nil && *p.Begun == d && isOwn
}

// CheckWrite decides, right before the first byte, whether a disk may be written to; the error is for people. Between
// an inspection and this moment lie minutes to months, in which a disk may have been changed for another, or written
// to. In this order:
//
//   - only a host that is being installed is written to, and only its one disk;
//   - a blank disk holds nothing to lose;
//   - what its owner has given up may be lost, and what an earlier try of this installation has begun to write;
//   - all else must be what inspection saw: the image was given on that ground.
func CheckWrite(w Write) error {
	state := w.Host.Status.Provisioning.State
	if w.Host.Spec.Image == nil || state != metal3api.StateProvisioning {
		return fmt.Errorf("host %s is not being installed, it is %s", w.Host.Name, stateName(state))
	}
	if w.Host.Status.HardwareDetails == nil {
		return fmt.Errorf("host %s was not inspected", w.Host.Name)
	}

	disk, err := OneDisk(w.Host.Spec.RootDeviceHints, w.Host.Status.HardwareDetails.Storage)
	if err != nil {
		return err
	}
	if !w.Disk.is(disk) {
		return fmt.Errorf("disk %s (serial number %q) is not the one that inspection saw, %s", w.Disk.Name, w.Disk.Serial,
			describeDisks([]metal3api.Storage{disk}))
	}

	_, seen, _ := w.Seen.find(disk)
	switch {
	case w.Holds.Unreadable != "":
		return fmt.Errorf("disk %s cannot be read: %s; replace it", w.Disk.Name, w.Holds.Unreadable)
	case w.Holds.IsBlank(),
		w.Permit.covers(w.Host, w.Disk, w.Holds),
		allowsWipe(w.Host, imageURL(w.Host.Spec.Image)),
		w.Holds.Fingerprint != "" && w.Holds.Fingerprint == seen.Fingerprint:
		return nil
	}

	return fmt.Errorf("disk %s is not as inspection saw it, it holds: %s (%s); if that may be lost, run: %s",
		w.Disk.Name, strings.Join(w.Holds.Kinds, ", "), w.Holds.Fingerprint, wipeCommand(w.Host, w.Host))
}

// is reports whether an agent's disk is one that inspection saw, by what does not change from boot to boot if it has
// that.
func (d WriteDisk) is(s metal3api.Storage) bool {
	switch {
	case d.WWN != "" && s.WWN != "":
		return d.WWN == s.WWN
	case d.Serial != "" && s.SerialNumber != "":
		return d.Serial == s.SerialNumber
	}

	for _, name := range append([]string{s.Name}, s.AlternateNames...) {
		if name == d.Name {
			return true
		}
	}

	return false
}
