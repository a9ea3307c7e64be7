package metal3

import (
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNext(t *testing.T) {
	const image, other = "http://172.22.0.1:6180/images/debian-13.raw", "http://172.22.0.1:6180/images/other.raw"
	want := in("")
	want.Spec.Image = &metal3api.Image{URL: image}
	disk := &metal3api.HardwareDetails{Storage: []metal3api.Storage{{Name: "/dev/sda"}}}
	has := func(state metal3api.ProvisioningState, url string, change ...func(*metal3api.BareMetalHost)) *metal3api.BareMetalHost {
		h := in(state)
		h.Status.HardwareDetails = disk
		if url != "" {
			h.Spec.Image = &metal3api.Image{URL: url}
		}
		for _, f := range change {
			f(h)
		}
		return h
	}
	note := func(key, value string) func(*metal3api.BareMetalHost) {
		return func(h *metal3api.BareMetalHost) { h.Annotations = map[string]string{key: value} }
	}
	live := Record{Host: *has(metal3api.StateProvisioned, image)}
	for _, c := range []struct {
		name     string
		have     *metal3api.BareMetalHost
		rec      Record
		step     Step
		sentence string
	}{
		{"new", nil, Record{}, StepCreate, ""},
		{"lost by the API", nil, live, StepRestore, ""},
		{"lost by the API, removed before", nil, Record{Host: live.Host, Gone: true}, StepCreate, ""},
		{"restored, not looked at", has("", image, note(annotationPaused, pausedBy)), live, StepWait, `host node-1 is "" in the API, "provisioned" in its record`},
		{"restored", has(metal3api.StateProvisioned, image, note(annotationPaused, pausedBy)), live, StepResume, ""},
		{"paused by its owner", has(metal3api.StateProvisioned, image, note(annotationPaused, "me")), live, StepApply, ""},
		{"created", has("", ""), Record{}, StepWait, "it is not registered yet"},
		{"registering", has(metal3api.StateRegistering, ""), Record{}, StepWait, "it is registering"},
		{"inspecting", has(metal3api.StateInspecting, ""), Record{}, StepWait, "it is inspecting"},
		{"available", has(metal3api.StateAvailable, ""), Record{}, StepImage, ""},
		{"available, ambiguous disk", has(metal3api.StateAvailable, "", func(h *metal3api.BareMetalHost) {
			h.Status.HardwareDetails = &metal3api.HardwareDetails{Storage: []metal3api.Storage{{Name: "/dev/sda"}, {Name: "/dev/sdb"}}}
		}), Record{}, StepHold, "rootDevice fits 2 disks (/dev/sda, /dev/sdb); name one of: /dev/sda 0 GiB; /dev/sdb 0 GiB"},
		{"available, not inspected", has(metal3api.StateAvailable, "", func(h *metal3api.BareMetalHost) { h.Status.HardwareDetails = nil }), Record{}, StepWait, "it is not inspected yet"},
		{"being installed", has(metal3api.StateProvisioning, image), Record{}, StepApply, ""},
		{"in service", has(metal3api.StateProvisioned, image), live, StepApply, ""},
		{"in service, the site names another image", has(metal3api.StateProvisioned, other), live, StepHold,
			`it is in service with image "` + other + `", site.yaml names "` + image + `"; to install that and lose what is on its disk, run: kubectl -n metal3 annotate bmh node-1 firstlight.dev/allow-wipe=true`},
		{"in service, given up", has(metal3api.StateProvisioned, other, note(AllowWipe, "true")), live, StepImage, ""},
		{"being installed, the site names another image", has(metal3api.StateProvisioning, other), Record{}, StepHold,
			`it is being installed with image "` + other + `", site.yaml names "` + image + `" now; wait until it is provisioned, or set the annotation firstlight.dev/allow-wipe=true on it`},
		{"somebody else's", has(metal3api.StateExternallyProvisioned, image), Record{}, StepApply, ""},
		{"somebody else's without image", has(metal3api.StateExternallyProvisioned, "", note(AllowWipe, "true")), Record{}, StepHold, "it is externally provisioned: the appliance never installs it"},
		{"without a BMC", has(metal3api.StateUnmanaged, ""), Record{}, StepHold, "it has no BMC in site.yaml: the appliance cannot switch it on"},
		{"being removed", has(metal3api.StateProvisioned, image, func(h *metal3api.BareMetalHost) { h.DeletionTimestamp = &metav1.Time{} }), live, StepWait,
			"its owner is removing it; afterwards it is created again, because it is still in site.yaml"},
	} {
		t.Run(c.name, func(t *testing.T) {
			step, sentence := Next(want, c.have, c.rec)
			assert.Equal(t, c.step, step)
			assert.Equal(t, c.sentence, sentence)
			if got := Shape(step, want, c.have); step != StepImage && step != StepRestore {
				have := ""
				if c.have != nil {
					have = imageURL(c.have.Spec.Image)
				}
				assert.Equal(t, have, imageURL(got.Spec.Image), "only StepImage changes an image")
			}
		})
	}
}
