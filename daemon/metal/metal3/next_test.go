package metal3

import (
	"errors"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"firstlight.dev/firstlight/assets/label"
)

// dataOn is an inspection that saw data of nobody's on a disk.
func dataOn(disk string) Contents {
	return Contents{disk: {Kinds: []string{"gpt", "ext4"}, Fingerprint: "data-00000000000a"}}
}

func TestNext(t *testing.T) {
	const image, other = "http://172.22.0.1:6180/images/debian-13.raw", "http://172.22.0.1:6180/images/other.raw"
	want := in("")
	want.Spec.Image = &metal3api.Image{URL: image, DiskFormat: ptr.To("raw")}
	disk := &metal3api.HardwareDetails{Storage: []metal3api.Storage{{Name: "/dev/sda"}}}
	has := func(state metal3api.ProvisioningState, url string, change ...func(*metal3api.BareMetalHost)) *metal3api.BareMetalHost {
		h := in(state)
		h.Status.HardwareDetails = disk
		if url != "" {
			h.Spec.Image = &metal3api.Image{URL: url, DiskFormat: ptr.To("raw")}
		}
		for _, f := range change {
			f(h)
		}
		return h
	}
	note := func(key, value string) func(*metal3api.BareMetalHost) {
		return func(h *metal3api.BareMetalHost) { h.Annotations = map[string]string{key: value} }
	}
	failed := func(h *metal3api.BareMetalHost) { h.Status.ErrorMessage = "Image provisioning failed" }
	anew := func(h *metal3api.BareMetalHost) { h.UID = "made again" }
	blank := Contents{"/dev/sda": {}}
	live := HostBackup{Host: *has(metal3api.StateProvisioned, image, func(h *metal3api.BareMetalHost) { h.UID = "before" })}
	adopted := HostBackup{Host: *has(metal3api.StateProvisioned, image)}
	for _, c := range []struct {
		name     string
		have     *metal3api.BareMetalHost
		rec      HostBackup
		found    Contents
		step     Step
		reason   Reason
		sentence string
	}{
		{"new", nil, HostBackup{}, nil, StepCreate, "", ""},
		{"its record is torn", nil, HostBackup{Unreadable: "hosts/node-1.json: it is torn"}, nil, StepHold, ReasonTorn,
			"its record on DATA cannot be read, so it may be in service: hosts/node-1.json: it is torn; if it is, run: firstlightd adopt node-1; if it never was, remove that file"},
		{"available, its record is torn", has(metal3api.StateAvailable, ""), HostBackup{Unreadable: "hosts/node-1.json: it is torn"}, blank, StepHold, ReasonTorn,
			"its record on DATA cannot be read, so it may be in service: hosts/node-1.json: it is torn; if it is, run: firstlightd adopt node-1; if it never was, remove that file"},
		{"in service, its record is torn", has(metal3api.StateProvisioned, image), HostBackup{Unreadable: "hosts/node-1.json: it is torn"}, nil, StepApply, "", ""},
		{"lost by the API", nil, live, nil, StepRestore, "", ""},
		{"lost by the API, removed before", nil, HostBackup{Host: live.Host, Removed: true}, nil, StepCreate, "", ""},
		{"restored, without its status", has("", image, note(annotationPaused, pausedBy)), live, nil, StepRestore, "", ""},
		{"restored, its record gone", has("", image, note(annotationPaused, pausedBy)), HostBackup{}, nil, StepWait, ReasonBackup, `host node-1 has image "` + image + `" in the API, "" on its disk`},
		{"restored", has(metal3api.StateProvisioned, image, note(annotationPaused, pausedBy)), live, nil, StepResume, "", ""},
		{"paused by its owner", has(metal3api.StateProvisioned, image, note(annotationPaused, "me")), live, nil, StepApply, "", ""},
		{"created", has("", ""), HostBackup{}, nil, StepWait, "", "it is not registered yet"},
		{"registering", has(metal3api.StateRegistering, ""), HostBackup{}, nil, StepWait, "", "it is registering"},
		{"inspecting", has(metal3api.StateInspecting, ""), HostBackup{}, nil, StepWait, "", "it is inspecting"},
		{"available", has(metal3api.StateAvailable, ""), HostBackup{}, blank, StepImage, "", ""},
		{"available, data on the disk", has(metal3api.StateAvailable, ""), HostBackup{}, dataOn("/dev/sda"), StepHold, ReasonDiskNotEmpty,
			"its disk /dev/sda is not empty, it holds: gpt, ext4; if that may be lost, set overwrite: data-00000000000a for it in site.yaml and run: firstlightd reload"},
		{"available, unknown data", has(metal3api.StateAvailable, ""), HostBackup{}, Contents{"/dev/sdb": {}}, StepHold, ReasonDiskNotEmpty,
			"it is not known what its disk /dev/sda holds; to have it inspected again, run: kubectl -n metal3 annotate bmh node-1 inspect.metal3.io="},
		{"available, data on the disk, given up for its image", has(metal3api.StateAvailable, "", note(AllowWipe, image)), HostBackup{}, dataOn("/dev/sda"), StepImage, "", ""},
		{"available, data on the disk, given up for another image", has(metal3api.StateAvailable, "", note(AllowWipe, other)), HostBackup{}, dataOn("/dev/sda"), StepHold, ReasonDiskNotEmpty,
			"its disk /dev/sda is not empty, it holds: gpt, ext4; if that may be lost, set overwrite: data-00000000000a for it in site.yaml and run: firstlightd reload"},
		{"available, ambiguous disk", has(metal3api.StateAvailable, "", func(h *metal3api.BareMetalHost) {
			h.Status.HardwareDetails = &metal3api.HardwareDetails{Storage: []metal3api.Storage{{Name: "/dev/sda"}, {Name: "/dev/sdb"}}}
		}), HostBackup{}, nil, StepHold, ReasonDiskAmbiguous, "rootDevice fits 2 disks (/dev/sda, /dev/sdb); name one of: /dev/sda 0 MiB; /dev/sdb 0 MiB"},
		{"available, not inspected", has(metal3api.StateAvailable, "", func(h *metal3api.BareMetalHost) { h.Status.HardwareDetails = nil }), HostBackup{}, nil, StepWait, "", "it is not inspected yet"},
		{"available, its record not written", has(metal3api.StateAvailable, "", anew), HostBackup{}, blank, StepWait, ReasonBackup,
			"host node-1 has no record on DATA yet, and gets no image before; is DATA full or read-only?"},
		{"available, in service before", has(metal3api.StateAvailable, "", anew), live, blank, StepHold, ReasonDecision,
			"it was in service before its BareMetalHost was made again; to install it again and lose what is on its disk, run: kubectl -n metal3 annotate --overwrite bmh node-1 firstlight.dev/allow-wipe=" + image},
		{"available, adopted", has(metal3api.StateAvailable, "", anew), adopted, dataOn("/dev/sda"), StepForget, "", ""},
		{"being installed, adopted", has(metal3api.StateProvisioning, image, anew), adopted, nil, StepApply, "", ""},
		{"adopted", nil, adopted, nil, StepRestore, "", ""},
		{"being installed", has(metal3api.StateProvisioning, image), HostBackup{}, nil, StepApply, "", ""},
		{"in service", has(metal3api.StateProvisioned, image), live, nil, StepApply, "", ""},
		{"in service, the site names another image", has(metal3api.StateProvisioned, other), live, nil, StepHold, ReasonDecision,
			`it is in service with image "` + other + `", site.yaml names "` + image + `"; to install that and lose what is on its disk, run: kubectl -n metal3 annotate --overwrite bmh node-1 firstlight.dev/allow-wipe=` + image},
		{"in service, given up for that image", has(metal3api.StateProvisioned, other, note(AllowWipe, image)), live, nil, StepImage, "", ""},
		{"in service, given up for an earlier image", has(metal3api.StateProvisioned, other, note(AllowWipe, other)), live, nil, StepHold, ReasonDecision,
			`it is in service with image "` + other + `", site.yaml names "` + image + `"; to install that and lose what is on its disk, run: kubectl -n metal3 annotate --overwrite bmh node-1 firstlight.dev/allow-wipe=` + image},
		{"in service, given up for whatever comes", has(metal3api.StateProvisioned, other, note(AllowWipe, "true")), live, nil, StepHold, ReasonDecision,
			`it is in service with image "` + other + `", site.yaml names "` + image + `"; to install that and lose what is on its disk, run: kubectl -n metal3 annotate --overwrite bmh node-1 firstlight.dev/allow-wipe=` + image},
		{"being installed, the site names another image", has(metal3api.StateProvisioning, other), HostBackup{}, nil, StepHold, ReasonDecision,
			`it is being installed with image "` + other + `", site.yaml names "` + image + `" now: that comes when this installation fails; to have it anyway, run: kubectl -n metal3 annotate --overwrite bmh node-1 firstlight.dev/allow-wipe=` + image},
		{"its installation failed", has(metal3api.StateProvisioning, image, failed), HostBackup{}, nil, StepApply, "", ""},
		{"its installation failed, the site names another image", has(metal3api.StateProvisioning, other, failed), HostBackup{}, nil, StepImage, "", ""},
		{"its installation failed, the site names another digest", has(metal3api.StateProvisioning, image, failed, func(h *metal3api.BareMetalHost) { h.Spec.Image.Checksum = "1" }), HostBackup{}, nil, StepImage, "", ""},
		{"in service with an error, the site names another digest", has(metal3api.StateProvisioned, image, failed, func(h *metal3api.BareMetalHost) { h.Spec.Image.Checksum = "1" }), live, nil, StepApply, "", ""},
		{"somebody else's", has(metal3api.StateExternallyProvisioned, image), HostBackup{}, nil, StepApply, "", ""},
		{"somebody else's without image", has(metal3api.StateExternallyProvisioned, "", note(AllowWipe, image)), HostBackup{}, nil, StepHold, ReasonDecision, "it is externally provisioned: the appliance never installs it"},
		{"without a BMC", has(metal3api.StateUnmanaged, ""), HostBackup{}, nil, StepHold, ReasonDecision, "it has no BMC in site.yaml: the appliance cannot switch it on"},
		{"being removed", has(metal3api.StateProvisioned, image, func(h *metal3api.BareMetalHost) { h.DeletionTimestamp = &metav1.Time{} }), live, nil, StepWait, "",
			"its owner is removing it; afterwards it is created again, because it is still in site.yaml"},
	} {
		t.Run(c.name, func(t *testing.T) {
			next := Next(NodeObjects{Host: want}, c.have, c.rec, c.found)
			step := next.Step
			fingerprint := next.Fingerprint // of cases about consent
			assert.Equal(t, Decision{Step: c.step, Reason: c.reason, Sentence: c.sentence, Fingerprint: fingerprint}, next)
			assert.True(t, MaySwitchOn(c.have) || step != StepCreate && step != StepImage, "the pre-flight is asked before it is needed")
			if got := ObjectForStep(step, want, c.have); step != StepImage && step != StepRestore {
				have := ""
				if c.have != nil {
					have = imageURL(c.have.Spec.Image)
				}
				assert.Equal(t, have, imageURL(got.Spec.Image), "only StepImage changes an image")
			}
		})
	}
}

// TestANodeThatIsBeingInstalledKeepsItsImage: also if the site names another one while it is on hold. Metal3 would record
// that as installed.
func TestANodeThatIsBeingInstalledKeepsItsImage(t *testing.T) {
	want := in("")
	want.Spec.Image = &metal3api.Image{URL: "http://172.22.0.1:6180/images/new.raw"}
	for _, state := range []metal3api.ProvisioningState{metal3api.StateProvisioning, metal3api.StatePreparing} {
		have := in(state)
		have.Spec.Image = &metal3api.Image{URL: "http://172.22.0.1:6180/images/old.raw", Checksum: "00", ChecksumType: "sha256"}
		have.Status.HardwareDetails = &metal3api.HardwareDetails{}
		have.Annotations = map[string]string{annotationPaused: label.Hold, label.Cleared: have.Spec.Image.URL}
		d := decide(NodeObjects{Host: want}, have, HostBackup{}, nil)
		require.Equal(t, StepRelease, d.Step, "%s: %s", state, d.Sentence)
		p, err := appliedPatch(d.Step, NodeObjects{Host: want}, have, "")
		require.NoError(t, err)
		assert.Equal(t, fields{annotationPaused: nil, label.Cleared: ClearedImage(have.Spec.Image)},
			p["metadata"].(fields)["annotations"], "or it is put on hold again")
		assert.Empty(t, p["spec"])
	}
}

func TestADiskMustBeLargeEnoughForItsImage(t *testing.T) {
	want, have := in(""), in(metal3api.StateAvailable)
	want.Spec.Image = &metal3api.Image{URL: "http://172.22.0.1:6180/images/debian-13.raw"}
	have.Status.HardwareDetails = &metal3api.HardwareDetails{Storage: []metal3api.Storage{{Name: "/dev/sda", SizeBytes: 640 << 20}}}
	for need, step := range map[int64]Step{0: StepImage, 640 << 20: StepImage, 641 << 20: StepHold} {
		next := Next(NodeObjects{Host: want, Need: need}, have, HostBackup{}, Contents{"/dev/sda": {}})
		assert.Equal(t, step, next.Step, need)
		if step == StepHold {
			assert.Equal(t, "its disk /dev/sda has 640 MiB, the image needs 641; name a larger disk with rootDevice in site.yaml", next.Sentence)
		}
	}
}

func TestTheApplianceNeverInstallsItself(t *testing.T) {
	want := in("")
	for _, have := range []*metal3api.BareMetalHost{nil, in(metal3api.StateAvailable), in(metal3api.StateProvisioned)} {
		next := Next(NodeObjects{Host: want, Own: "52:54:00:00:00:01"}, have, HostBackup{}, Contents{"/dev/sda": {}})
		assert.Equal(t, StepHold, next.Step)
		assert.Equal(t, "its MAC 52:54:00:00:00:01 is one of this appliance's own, which never installs itself; take the node out of site.yaml or correct its MAC", next.Sentence)
	}
	s := loadSite(t, []byte(`nodes: [{name: a, macs: ["52:54:00:AA:00:01"]}, {name: b, macs: ["52:54:00:aa:00:02"]}]`))
	appliance := testAppliance()
	appliance.MACs = []string{"52:54:00:aa:00:01"}
	for i, want := range []string{"52:54:00:aa:00:01", ""} {
		h, err := NewNodeObjects(s, s.Nodes[i], appliance)
		require.NoError(t, err)
		assert.Equal(t, want, h.Own)
	}
}

func TestBlocks(t *testing.T) {
	got := Blocks(map[string]error{"a": errors.New("no image of that name")}, []Progress{
		{Node: "b", Decision: Decision{Step: StepHold, Reason: ReasonDiskNotEmpty, Sentence: "its disk is not empty"}},
		{Node: "c", Decision: Decision{Step: StepWait, Reason: ReasonBackup, Sentence: "host c has no record"}},
		{Node: "d", Decision: Decision{Step: StepImage, Reason: "", Sentence: ""}, Err: errors.New("refused")},
		{Node: "e", Decision: Decision{Step: StepWait, Reason: "", Sentence: "it is inspecting"}},
		{Node: "f", Decision: Decision{Step: StepPreflight, Reason: "", Sentence: "its BMC does not answer"}},
		{Node: "g", Decision: Decision{Step: StepRestore, Reason: "", Sentence: ""}},
	})
	assert.Equal(t, map[string]Block{
		"a": {ReasonInvalid, "no image of that name"},
		"b": {ReasonDiskNotEmpty, "its disk is not empty"},
		"c": {ReasonBackup, "host c has no record"},
		"d": {ReasonFailed, "refused"},
	}, got)
}
