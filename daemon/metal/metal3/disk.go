package metal3

import (
	"fmt"
	"strings"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
)

// OneDisk returns the one disk that all hints hold for. None or several is an error that
// lists what is there: Ironic would take the first that fits, and an installation on the wrong disk cannot be undone. No hints stand for the only disk.
//
// Hints mean what Metal3 says (RootDeviceHints): model and vendor are parts, everything
// else is whole; minSizeGigabytes is in units of 2^30 bytes.
func OneDisk(hints *metal3api.RootDeviceHints, disks []metal3api.Storage) (metal3api.Storage, error) {
	if hints == nil {
		hints = &metal3api.RootDeviceHints{}
	}

	var one metal3api.Storage
	var fit []string
	for _, d := range disks {
		if diskFits(hints, d) {
			one, fit = d, append(fit, shortestName(d))
		}
	}

	switch {
	case len(fit) == 1:
		return one, nil
	case len(disks) == 0:
		return metal3api.Storage{}, fmt.Errorf("inspection found no disk")
	case len(fit) == 0:
		return metal3api.Storage{}, fmt.Errorf("rootDevice fits none of its disks: %s", describeDisks(disks))
	}

	return metal3api.Storage{}, fmt.Errorf(
		"rootDevice fits %d disks (%s); name one of: %s", len(fit), strings.Join(fit, ", "), describeDisks(disks),
	)
}

// onlyDisk is the hints that fit the only disk, by what does not change when it is found
// at another place; nil unless there is exactly one.
func onlyDisk(disks []metal3api.Storage) *metal3api.RootDeviceHints {
	if len(disks) != 1 {
		return nil
	}
	switch d := disks[0]; {
	case d.WWN != "":
		return &metal3api.RootDeviceHints{WWN: d.WWN}
	case d.SerialNumber != "":
		return &metal3api.RootDeviceHints{SerialNumber: d.SerialNumber}
	default:
		return &metal3api.RootDeviceHints{DeviceName: d.Name}
	}
}

func diskFits(h *metal3api.RootDeviceHints, d metal3api.Storage) bool {
	whole := func(hint, value string) bool { return hint == "" || hint == value }
	part := func(hint, value string) bool { return hint == "" || strings.Contains(value, hint) }
	named := h.DeviceName == "" || h.DeviceName == d.Name
	for _, other := range d.AlternateNames {
		named = named || h.DeviceName == other
	}

	return named &&
		whole(h.HCTL, d.HCTL) &&
		part(h.Model, d.Model) &&
		part(h.Vendor, d.Vendor) &&
		whole(h.SerialNumber, d.SerialNumber) &&
		whole(h.WWN, d.WWN) &&
		whole(h.WWNVendorExtension, d.WWNVendorExtension) &&
		whole(h.WWNWithExtension, d.WWNWithExtension) &&
		int64(d.SizeBytes) >= int64(h.MinSizeGigabytes)<<30 &&
		(h.Rotational == nil || *h.Rotational == d.Rotational)
}

// shortestName is the shortest name of a disk: /dev/sda, where the operator prefers a path.
func shortestName(d metal3api.Storage) string {
	name := d.Name
	for _, other := range d.AlternateNames {
		if len(other) < len(name) {
			name = other
		}
	}
	return name
}

func describeDisks(disks []metal3api.Storage) string {
	var out []string
	for _, d := range disks {
		text := fmt.Sprintf("%s %d GiB", shortestName(d), int64(d.SizeBytes)>>30)
		if d.SizeBytes < 1<<30 {
			text = fmt.Sprintf("%s %d MiB", shortestName(d), int64(d.SizeBytes)>>20)
		}

		if d.SerialNumber != "" {
			text += " serialNumber " + d.SerialNumber
		}

		if d.WWN != "" {
			text += " wwn " + d.WWN
		}

		out = append(out, text)
	}
	return strings.Join(out, "; ")
}
