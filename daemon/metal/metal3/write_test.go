package metal3

import (
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/inspection"
)

func TestTheDiskIsAskedAgainBeforeItIsWritten(t *testing.T) {
	const image = "http://172.22.0.1/a.raw"
	host := func(change ...func(*metal3api.BareMetalHost)) *metal3api.BareMetalHost {
		h := &metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "uid-1"}}
		h.Spec.Image = &metal3api.Image{URL: image}
		h.Spec.RootDeviceHints = &metal3api.RootDeviceHints{SerialNumber: "A"}
		h.Status.Provisioning.State = metal3api.StateProvisioning
		h.Status.HardwareDetails = &metal3api.HardwareDetails{Storage: []metal3api.Storage{
			{Name: "/dev/sda", SerialNumber: "A"}, {Name: "/dev/sdb", SerialNumber: "B"},
		}}
		for _, c := range change {
			c(h)
		}
		return h
	}
	blank := inspection.Disk{Kinds: []string{}}
	data := inspection.Disk{Kinds: []string{"gpt", "ext4"}, Fingerprint: "data-0123456789ab"}
	other := inspection.Disk{Kinds: []string{"gpt", "xfs"}, Fingerprint: "data-ba9876543210"}
	installed := inspection.Disk{Kinds: []string{"gpt"}, Fingerprint: "data-111111111111", Mark: &inspection.Mark{Node: "node9"}}
	disk := WriteDisk{Name: "/dev/sda", Serial: "A"}
	begun := Permit{Host: "uid-1", Begun: &disk}
	for name, c := range map[string]struct {
		w    Write
		want string // part of the refusal; "" if it may be written
	}{
		"blank": {Write{Host: host(), Disk: disk, Holds: blank, Seen: Contents{"/dev/sda": blank}}, ""},
		"blank, and what it was before is not known": {Write{Host: host(), Disk: disk, Holds: blank}, ""},
		"data that was seen, and consented to":       {Write{Host: host(), Disk: disk, Holds: data, Seen: Contents{"/dev/sda": data}}, ""},
		"its name is another in this boot":           {Write{Host: host(), Disk: WriteDisk{Name: "/dev/sdb", Serial: "A"}, Holds: data, Seen: Contents{"/dev/sda": data}}, ""},
		"its owner gave it up":                       {Write{Host: host(), Disk: disk, Holds: installed, Permit: Permit{Host: "uid-1", Wipe: image}}, ""},
		"its owner gives it up now": {Write{Host: host(func(h *metal3api.BareMetalHost) {
			h.Annotations = map[string]string{AllowWipe: image}
		}), Disk: disk, Holds: other, Seen: Contents{"/dev/sda": blank}}, ""},
		"an earlier try wrote half of the image": {Write{Host: host(), Disk: disk, Holds: other, Seen: Contents{"/dev/sda": blank}, Permit: begun}, ""},

		"an earlier try wrote half of another image": {Write{Host: host(func(h *metal3api.BareMetalHost) {
			h.Spec.Image = &metal3api.Image{URL: "http://172.22.0.1/corrected.raw"}
		}), Disk: disk, Holds: other, Seen: Contents{"/dev/sda": blank}, Permit: begun}, ""},

		"an earlier try wrote all of it, with its mark": {Write{Host: host(), Disk: disk, Holds: inspection.Disk{
			Kinds:       []string{"gpt"},
			Fingerprint: "data-222222222222",
			Mark:        &inspection.Mark{Node: "node1", ID: "uid-1"},
		}, Seen: Contents{"/dev/sda": blank}, Permit: begun}, ""},
		"begun, as another machine said, on an installed system": {Write{Host: host(), Disk: disk, Holds: installed, Seen: Contents{"/dev/sda": blank}, Permit: begun}, "is not as inspection saw it"},

		"data where inspection saw none": {Write{Host: host(), Disk: disk, Holds: data, Seen: Contents{"/dev/sda": blank}}, "is not as inspection saw it, it holds: gpt, ext4"},
		"other data than inspection saw": {Write{Host: host(), Disk: disk, Holds: other, Seen: Contents{"/dev/sda": data}}, "allow-wipe=" + image},
		"an installed system":            {Write{Host: host(), Disk: disk, Holds: installed, Seen: Contents{"/dev/sda": data}}, "is not as inspection saw it"},
		"data of which nothing is known": {Write{Host: host(), Disk: disk, Holds: data}, "is not as inspection saw it"},
		"no fingerprint on either side":  {Write{Host: host(), Disk: disk, Holds: inspection.Disk{Kinds: []string{"gpt"}}, Seen: Contents{"/dev/sda": {Kinds: []string{"gpt"}}}}, "is not as inspection saw it"},
		"it cannot be read":              {Write{Host: host(), Disk: disk, Holds: inspection.Disk{Unreadable: "I/O error"}, Permit: begun}, "cannot be read: I/O error"},
		"another disk, blank":            {Write{Host: host(), Disk: WriteDisk{Name: "/dev/sda", Serial: "C"}, Holds: blank}, "is not the one that inspection saw"},
		"another disk after a begun try": {Write{Host: host(), Disk: WriteDisk{Name: "/dev/sda", Serial: "C"}, Holds: blank, Permit: begun}, "is not the one that inspection saw"},
		"a permit for another image":     {Write{Host: host(), Disk: disk, Holds: other, Permit: Permit{Host: "uid-1", Wipe: "b"}}, "is not as inspection saw it"},
		"a permit for an earlier object": {Write{Host: host(), Disk: disk, Holds: other, Permit: Permit{Host: "uid-0", Wipe: image}}, "is not as inspection saw it"},
		"begun on another disk":          {Write{Host: host(), Disk: disk, Holds: other, Permit: Permit{Host: "uid-1", Begun: &WriteDisk{Name: "/dev/sda", Serial: "Z"}}}, "is not as inspection saw it"},
		"a host in service": {Write{Host: host(func(h *metal3api.BareMetalHost) {
			h.Status.Provisioning.State = metal3api.StateProvisioned
		}), Disk: disk, Holds: blank, Permit: begun}, "is not being installed, it is provisioned"},
		"a host without an image": {Write{Host: host(func(h *metal3api.BareMetalHost) { h.Spec.Image = nil }), Disk: disk, Holds: blank}, "is not being installed"},
		"hints that fit two":      {Write{Host: host(func(h *metal3api.BareMetalHost) { h.Spec.RootDeviceHints = nil }), Disk: disk, Holds: blank}, "rootDevice fits 2 disks"},
	} {
		err := CheckWrite(c.w)
		if c.want == "" {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorContains(t, err, c.want, name)
		}
	}
}
