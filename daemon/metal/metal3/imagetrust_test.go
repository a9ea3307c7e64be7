package metal3

import (
	"strings"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"firstlight.dev/firstlight/assets/site"
)

func TestWhichImagesAreTrusted(t *testing.T) {
	own, signed, other := strings.Repeat("0a", 32), strings.Repeat("0b", 32), strings.Repeat("0c", 32)
	trust := ImageTrust{Required: true, Own: map[string]bool{own: true}, Signed: map[string]bool{signed: true}}
	for _, c := range []struct {
		name  string
		image *metal3api.Image
		says  string // "" if it is trusted
	}{
		{"none yet", nil, ""},
		{"of the stick", &metal3api.Image{URL: "http://x/y", Checksum: own, ChecksumType: metal3api.SHA256}, ""},
		{"signed", &metal3api.Image{URL: "https://x/y", Checksum: signed, ChecksumType: metal3api.SHA256}, ""},
		{"signed, upper case", &metal3api.Image{URL: "HTTP://x/y", Checksum: strings.ToUpper(signed), ChecksumType: metal3api.SHA256}, ""},
		{"not signed", &metal3api.Image{URL: "http://x/y", Checksum: other, ChecksumType: metal3api.SHA256},
			"its image http://x/y with sha256 0c0c0c0c0c0c… is signed by none of images.keys in site.yaml; sign it with " +
				"firstlight sign, and upload the signature: firstlight artifact push IMAGE.minisig binary/NAME.minisig"},
		{"a signed digest of another kind", &metal3api.Image{URL: "http://x/y", Checksum: signed, ChecksumType: metal3api.SHA512}, "has no sha256"},
		{"a digest that is fetched", &metal3api.Image{URL: "http://x/y", Checksum: "http://x/y.sha256", ChecksumType: metal3api.AutoChecksum}, "has no sha256"},
		{"a URL as the digest", &metal3api.Image{URL: "http://x/y", Checksum: "http://x/y", ChecksumType: metal3api.SHA256}, "is signed by none of"},
		{"a live ISO with a signed digest",
			&metal3api.Image{URL: "http://x/y", Checksum: signed, ChecksumType: metal3api.SHA256, DiskFormat: ptr.To("live-iso")}, "whose digest no one compares"},
		{"a container image with a signed digest",
			&metal3api.Image{URL: "oci://x/y:1", Checksum: signed, ChecksumType: metal3api.SHA256}, "is not at an http or https address"},
		{"a file of Ironic's", &metal3api.Image{URL: "file:///x", Checksum: signed, ChecksumType: metal3api.SHA256}, "is not at an http"},
		{"no scheme", &metal3api.Image{URL: "x/y", Checksum: signed, ChecksumType: metal3api.SHA256}, "is not at an http"},
		{"no digest", &metal3api.Image{URL: "http://x/disc.iso"}, "has no sha256"},
	} {
		said := trust.CheckImage(c.image)
		if c.says == "" {
			assert.Empty(t, said, c.name)
		} else {
			assert.Contains(t, said, c.says, c.name)
		}
		assert.Empty(t, ImageTrust{}.CheckImage(c.image), c.name)
	}
}

func TestWhatIronicWasToldIsTheImage(t *testing.T) {
	image := &metal3api.Image{URL: "http://x/y", Checksum: strings.Repeat("0B", 32), ChecksumType: metal3api.SHA256}
	told := func(key string, value any) map[string]any {
		all := map[string]any{
			"image_source":        image.URL,
			"image_os_hash_algo":  "sha256",
			"image_os_hash_value": strings.Repeat("0b", 32),
		}
		all[key] = value
		return all
	}
	assert.Empty(t, CheckHandedImage(image, told("image_checksum", nil)))
	for key, value := range map[string]any{
		"image_source":        "http://x/z",
		"image_os_hash_algo":  nil,
		"image_os_hash_value": strings.Repeat("0c", 32),
	} {
		assert.Contains(t, CheckHandedImage(image, told(key, value)), "Ironic was told to write http://x/", key)
	}
	assert.NotEmpty(t, CheckHandedImage(image, nil))
	assert.NotEmpty(t, CheckHandedImage(nil, told("image_checksum", nil)))
}

// TestAHostGetsNoImageThatIsNotSigned, one of the site or one that was applied; what it has, it keeps.
func TestAHostGetsNoImageThatIsNotSigned(t *testing.T) {
	s := loadSite(t, []byte(`{nodes: [{name: node-1, macs: ["52:54:00:aa:00:01"], os: {image: debian-13}}]}`))
	a := testAppliance()
	a.Trust = ImageTrust{Required: true}
	node, err := NewNodeObjects(s, s.Nodes[0], a)
	require.NoError(t, err)
	require.Contains(t, node.Unsigned, "is signed by none of images.keys")

	idle := in(metal3api.StateAvailable)
	idle.Status.HardwareDetails = &metal3api.HardwareDetails{Storage: []metal3api.Storage{{Name: "/dev/sda"}}}
	wiped := idle.DeepCopy()
	wiped.Annotations = map[string]string{AllowWipe: node.Host.Spec.Image.URL}
	failed := idle.DeepCopy()
	failed.Spec.Image = node.Host.Spec.Image.DeepCopy()
	failed.Spec.Image.Checksum, failed.Status.ErrorMessage = "corrected since", "Image provisioning failed"
	served := in(metal3api.StateProvisioned)
	served.Spec.Image = node.Host.Spec.Image.DeepCopy()
	blank := Contents{"/dev/sda": {}}
	for name, c := range map[string]struct {
		have *metal3api.BareMetalHost
		step Step
	}{
		"new":                            {nil, StepCreate},
		"inspected":                      {idle, StepHold},
		"its disk was given up":          {wiped, StepHold},
		"its installation failed before": {failed, StepHold},
		"in service":                     {served, StepApply},
	} {
		d := decide(node, c.have, HostBackup{}, blank)
		assert.Equal(t, c.step, d.Step, name)
		if c.step == StepHold {
			assert.Equal(t, holdFor(ReasonUnsigned, "%s", node.Unsigned), d, name)
		}
	}

	a.Trust.Signed = map[string]bool{"00ff": true}
	node, err = NewNodeObjects(s, s.Nodes[0], a)
	require.NoError(t, err)
	assert.Equal(t, StepImage, decide(node, idle, HostBackup{}, blank).Step)

	host := applied(true, inspectedWith(oneDisk))
	a = keysOnly()
	for _, c := range []struct {
		trust ImageTrust
		step  Step
	}{
		{ImageTrust{}, StepImage},
		{ImageTrust{Required: true}, StepHold},
	} {
		a.Trust = c.trust
		n, err := NewAppliedObjects(&site.Site{Name: "rack-7"}, AppliedHost{Host: host}, a)
		require.NoError(t, err)
		d := decide(n, host, HostBackup{Host: *host}, blank)
		assert.Equal(t, c.step, d.Step)
		if c.step == StepHold {
			assert.Equal(t, ReasonUnsigned, d.Reason)
		}
	}
}
