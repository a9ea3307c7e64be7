package metal3

import (
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/inspection"
)

// TestConsentCoversWhatItNames: nothing that was not seen, and no server that an appliance installed, is covered by
// consent to whatever there is.
func TestConsentCoversWhatItNames(t *testing.T) {
	mark := &inspection.Mark{Site: "fleet", Node: "node-1", ID: "uid", Time: "2026-11-26 11:22"}
	of := func(site string) *inspection.Mark {
		m := *mark
		m.Site = site
		return &m
	}
	blank, data := inspection.Disk{}, inspection.Disk{Kinds: []string{"gpt", "ext4"}, Fingerprint: "data-00000000000a"}
	installed := func(m *inspection.Mark) inspection.Disk {
		return inspection.Disk{Kinds: []string{"gpt"}, Fingerprint: "data-00000000000b", Mark: m}
	}
	for _, c := range []struct {
		name    string
		sda     inspection.Disk // that is written to
		sdb     inspection.Disk
		consent string
		before  bool
		machine bool
		reason  Reason // "": it may be written to
		says    string
	}{
		{"blank", blank, data, "", false, false, "", ""},
		{"data", data, blank, "", false, false, ReasonDiskNotEmpty, "its disk /dev/sda is not empty, it holds: gpt, ext4; if that may be lost, set overwrite: data-00000000000a for it in site.yaml and run: firstlightd reload"},
		{"data, any may be lost", data, blank, "true", false, false, "", ""},
		{"data, any might have been lost before the first installation", data, blank, "true", true, false, ReasonDiskNotEmpty, "overwrite: data-00000000000a"},
		{"data, this may be lost", data, blank, "data-00000000000a", true, false, "", ""},
		{"data, other data may be lost", data, blank, "data-00000000000c", false, false, ReasonDiskNotEmpty, "overwrite: data-00000000000a"},
		{"installed by this site, any data may be lost", installed(mark), blank, "true", false, false, ReasonInstalled,
			"its disk /dev/sda was installed by this site on 2026-11-26 11:22 as node-1; to take it back as it is, run: firstlightd adopt node-1; to install it again and lose that, set overwrite: data-00000000000b for it in site.yaml and run: firstlightd reload"},
		{"installed by this site, this may be lost", installed(mark), blank, "data-00000000000b", false, false, "", ""},
		{"installed by another site", installed(of("other")), blank, "true", false, false, ReasonInstalled, `was installed by site "other" on 2026-11-26 11:22 as node-1; `},
		{"installed by an appliance of before", installed(of("")), blank, "true", false, false, ReasonInstalled, `was installed by an appliance on 2026-11-26 11:22 as node-1; `},
		{"installed on its other disk", blank, installed(mark), "true", false, false, ReasonInstalled, "its disk /dev/sdb was installed by this site on 2026-11-26 11:22 as node-1; "},
		{"installed on its other disk, this may be lost", blank, installed(mark), "data-00000000000b", false, false, "", ""},
		{"installed on its other disk, data on the first, only one of them may be lost", data, installed(mark), "data-00000000000b", false, false, ReasonInstalled, "its disk /dev/sdb"},
		{"installed by this site, for a machine that gave it back", installed(mark), blank, "released", true, true, "", ""},
		{"installed by another site since", installed(of("other")), blank, "released", true, true, ReasonInstalled, `installed by site "other"`},
		{"data that a machine left", data, blank, "released", true, true, "", ""},
		{"data of before the first machine", data, blank, "released", false, true, ReasonDiskNotEmpty, "overwrite: data-00000000000a"},
		{"data that a machine left, for something else", data, blank, "released", true, false, ReasonDiskNotEmpty, "overwrite: data-00000000000a"},
		{"data that a machine left on a disk that fails", inspection.Disk{Unreadable: "input/output error"}, blank, "released", true, true,
			ReasonDiskNotEmpty, "cannot be read"},
		{"unreadable", inspection.Disk{Unreadable: "input/output error"}, blank, "true", false, false, ReasonDiskNotEmpty, "its disk /dev/sda cannot be read: input/output error; "},
		{"seen by a ramdisk that knew no marks", inspection.Disk{Kinds: []string{"gpt"}}, blank, "true", false, false, ReasonDiskNotEmpty, "an earlier version inspected it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			disks := []metal3api.Storage{{Name: "/dev/disk/by-path/1", AlternateNames: []string{"/dev/sda"}}, {Name: "/dev/sdb"}}
			no := checkConsent(Contents{"/dev/sda": c.sda, "/dev/sdb": c.sdb}, install{
				Host: "node-1", Site: "fleet", Disk: disks[0], Disks: disks, Consent: c.consent, Before: c.before, Machine: c.machine,
			})
			if c.reason == "" {
				assert.Nil(t, no)
				return
			}
			if assert.NotNil(t, no) {
				assert.Equal(t, StepHold, no.Step)
				assert.Equal(t, c.reason, no.Reason)
				assert.Contains(t, no.Sentence, c.says)
			}
		})
	}
}

// TestConsentOnTheHostNamesWhatItCovers: what an owner says on the host itself covers data by its fingerprint, and
// nothing else does; the site's true and a machine's release are words for other cases.
func TestConsentOnTheHostNamesWhatItCovers(t *testing.T) {
	sda := metal3api.Storage{Name: "/dev/sda"}
	found := Contents{"/dev/sda": {Kinds: []string{"gpt"}, Fingerprint: "data-00000000000a"}}
	for given, isGiven := range map[string]bool{
		"data-00000000000a": true, "data-00000000000b": false, "true": false, Released: false, "": false,
	} {
		no := checkConsent(found, install{
			Host: "node-1", Disk: sda, Disks: []metal3api.Storage{sda}, Given: given, Before: true, Machine: true,
		})
		assert.Equal(t, isGiven, no == nil, given)
		if no != nil {
			assert.Equal(t, "data-00000000000a", no.Fingerprint, "what would have to be lost")
		}
	}
}

// TestNothingUnseenIsWritten: the inspection said nothing of the disk.
func TestNothingUnseenIsWritten(t *testing.T) {
	sda := metal3api.Storage{Name: "/dev/sda"}
	for _, found := range []Contents{nil, {"/dev/sdb": {}}} {
		no := checkConsent(found, install{Host: "node-1", Disk: sda, Disks: []metal3api.Storage{sda}, Consent: "true"})
		if assert.NotNil(t, no) {
			assert.Contains(t, no.Sentence, "it is not known what its disk /dev/sda holds; to have it inspected again, run: "+
				"kubectl -n metal3 annotate bmh node-1 inspect.metal3.io=")
		}
	}
}

// TestTwoDisksAreGivenUpTogether: what is written to and what would go out of service have one fingerprint.
func TestTwoDisksAreGivenUpTogether(t *testing.T) {
	one := joinFingerprints([]string{"data-00000000000a", "", "data-00000000000b"})
	assert.Regexp(t, `^data-[0-9a-f]{12}$`, one)
	assert.NotEqual(t, one, joinFingerprints([]string{"data-00000000000b", "data-00000000000a"}))
	assert.Equal(t, "data-00000000000a", joinFingerprints([]string{"", "data-00000000000a"}))
	assert.Empty(t, joinFingerprints(nil))
}
