package metal3

import (
	"crypto/sha256"
	"fmt"
	"strings"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/inspection"
)

// Contents is what inspection found on each disk, by device name. It comes from overlays/ramdisk.
type Contents map[string]inspection.Disk

// find looks a disk up by any of its names.
func (c Contents) find(d metal3api.Storage) (name string, disk inspection.Disk, ok bool) {
	for _, name := range append([]string{d.Name}, d.AlternateNames...) {
		if disk, ok := c[name]; ok {
			return name, disk, true
		}
	}
	return shortestName(d), inspection.Disk{}, false
}

// install is what a host's disks are to be written for.
type install struct {
	Host    string
	Site    string              // that names the host
	Disk    metal3api.Storage   // that is written to
	Disks   []metal3api.Storage // all that the server has
	Consent string              // "", "true", Released, or the fingerprint of what may be lost
	Given   string              // the same, on the host itself: it counts if it is a fingerprint
	Before  bool                // the host was in service once: consent without a fingerprint was for that installation
	Machine bool                // it is for a machine of Cluster API
}

// Released is consent to what machines of Cluster API leave on a host, each time that one has given it back: this
// appliance installed the host itself, and its record on DATA says so. A fresh stick has no record, and is given none.
const Released = "released"

// checkConsent decides whether what inspection found may be overwritten; nil if so. In this order:
//
//   - nothing is written to a disk that was not seen whole;
//   - what a machine of Cluster API left may be lost with consent to that;
//   - a server that an appliance installed, whatever disk says so, needs consent to just that: the fingerprint;
//   - data that nobody marked may be lost with consent to whatever there is, before the first installation only.
func checkConsent(found Contents, want install) *Decision {
	name, disk, ok := found.find(want.Disk)
	again := fmt.Sprintf("to have it inspected again, run: kubectl -n %s annotate bmh %s %s=", Namespace, want.Host,
		metal3api.InspectAnnotationPrefix)
	switch {
	case !ok:
		return refuse(ReasonDiskNotEmpty, "it is not known what its disk %s holds; %s", name, again)
	case disk.Unreadable != "":
		return refuse(ReasonDiskNotEmpty, "its disk %s cannot be read: %s; replace it, or name another one with "+
			"rootDevice; %s", name, disk.Unreadable, again)
	case len(disk.Kinds) > 0 && disk.Fingerprint == "":
		return refuse(ReasonDiskNotEmpty, "its disk %s is not empty, it holds: %s; an earlier version inspected it and "+
			"did not look for installed systems; %s", name, strings.Join(disk.Kinds, ", "), again)
	}

	mark, where, prints := marks(found, want)
	fingerprint := joinFingerprints(append(prints, disk.Fingerprint))
	switch {
	case disk.IsBlank() && mark == nil, fingerprint != "" && (want.Consent == fingerprint || want.Given == fingerprint):
		return nil
	case want.Consent == Released && want.Before && want.Machine && (mark == nil || mark.Site == "" || mark.Site == want.Site):
		return nil
	case mark != nil:
		return askConsent(fingerprint, ReasonInstalled, "its disk %s was installed by %s; to take it back as it is, run: "+
			"firstlightd adopt %s; to install it again and lose that, set overwrite: %s for it in site.yaml and run: "+
			"firstlightd reload", where, describeMark(*mark, want.Site), want.Host, fingerprint)
	case want.Consent == "true" && !want.Before:
		return nil
	}

	return askConsent(fingerprint, ReasonDiskNotEmpty, "its disk %s is not empty, it holds: %s; if that may be lost, set "+
		"overwrite: %s for it in site.yaml and run: firstlightd reload", name, strings.Join(disk.Kinds, ", "), fingerprint)
}

// marks are the first mark on any of the server's disks, the disk it is on, and the fingerprints of all other disks
// than the one to be written that have one.
func marks(found Contents, want install) (mark *inspection.Mark, where string, prints []string) {
	for _, d := range want.Disks {
		name, disk, _ := found.find(d)
		if disk.Mark == nil {
			continue
		}
		if mark == nil {
			mark, where = disk.Mark, name
		}
		if d.Name != want.Disk.Name {
			prints = append(prints, disk.Fingerprint)
		}
	}
	return mark, where, prints
}

// joinFingerprints is one fingerprint for all that are not empty.
func joinFingerprints(all []string) string {
	var prints []string
	for _, p := range all {
		if p != "" {
			prints = append(prints, p)
		}
	}

	switch len(prints) {
	case 0:
		return ""
	case 1:
		return prints[0]
	}

	sum := sha256.Sum256([]byte(strings.Join(prints, "\n")))
	return fmt.Sprintf("data-%x", sum[:6])
}

func describeMark(m inspection.Mark, site string) string {
	who := "an appliance"
	switch m.Site {
	case "":
	case site:
		who = "this site"
	default:
		who = fmt.Sprintf("site %q", m.Site)
	}

	if m.Time != "" {
		who += " on " + m.Time
	}

	return fmt.Sprintf("%s as %s", who, m.Node)
}

func refuse(reason Reason, format string, args ...any) *Decision {
	d := holdFor(reason, format, args...)
	return &d
}

// askConsent refuses until somebody consents to losing what has the fingerprint.
func askConsent(fingerprint string, reason Reason, format string, args ...any) *Decision {
	d := holdFor(reason, format, args...)
	d.Fingerprint = fingerprint
	return &d
}
