package flash

import (
	"fmt"
	"strings"
)

// Device is a block device, or a regular file that takes its place.
type Device struct {
	Name      string   `json:"name"` // sdb; the path of a regular file
	Path      string   `json:"path"` // /dev/sdb
	Model     string   `json:"model,omitempty"`
	Serial    string   `json:"serial,omitempty"`
	Bytes     int64    `json:"bytes"`
	Sector    int64    `json:"sector"`        // logical sector size, bytes
	Removable bool     `json:"removable"`     // the medium can be taken out, as of a stick
	USB       bool     `json:"usb,omitempty"` // it hangs on USB, as a disk in a case of its own
	ReadOnly  bool     `json:"readOnly,omitempty"`
	File      bool     `json:"file,omitempty"`   // a regular file
	Parent    string   `json:"parent,omitempty"` // the disk this is a partition of
	Uses      []string `json:"uses,omitempty"`   // "/dev/sdb1 is mounted on /mnt"
	System    bool     `json:"system,omitempty"` // something of the running system is on it
}

// Image is what a refusal depends on.
type Image struct {
	Bytes int64
}

// Reason is why a device must not be written. One that can be overridden is left to who
// repeats the device's name.
type Reason struct {
	Text        string
	Overridable bool
}

// RefusalReasons says why the image must not be written to the device; nothing means it may.
func RefusalReasons(d Device, i Image) []Reason {
	var out []Reason
	never := func(format string, args ...any) {
		out = append(out, Reason{fmt.Sprintf(format, args...), false})
	}
	if d.System {
		never("%s holds the running system", d.Path)
	}

	for _, use := range d.Uses {
		never("%s", use)
	}

	if d.Parent != "" {
		never("%s is a partition; name the whole disk, %s", d.Path, d.Parent)
	}

	if d.ReadOnly {
		never("%s is write-protected", d.Path)
	}

	if d.Sector != 512 {
		never("%s has sectors of %d bytes; the image's table is for 512", d.Path, d.Sector)
	}

	if d.Bytes < i.Bytes {
		never("%s has %d bytes, the image needs %d", d.Path, d.Bytes, i.Bytes)
	}

	switch {
	case d.File:
		out = append(out, Reason{fmt.Sprintf("%s is a regular file, not a disk", d.Path), true})
	case !d.Removable && !d.USB:
		out = append(out, Reason{fmt.Sprintf("%s is not removable and not on USB", d.Path), true})
	}

	return out
}

// CheckAllowed returns the refusal as an error. forced is the name that was repeated to override
// what can be overridden; it must be the device's own.
func CheckAllowed(d Device, reasons []Reason, forced string) error {
	var left []string
	overridable := true
	for _, r := range reasons {
		if r.Overridable && forced == d.Name {
			continue
		}
		left = append(left, r.Text)
		overridable = overridable && r.Overridable
	}

	switch {
	case len(left) == 0:
		return nil
	case overridable && forced != "":
		return fmt.Errorf("%s; --force-device %s does not name it, it is %q", strings.Join(left, "; "), forced, d.Name)
	case overridable:
		return fmt.Errorf("%s; if it is meant, add --force-device %s", strings.Join(left, "; "), d.Name)
	default:
		return fmt.Errorf("%s", strings.Join(left, "; "))
	}
}
