package metal3

import (
	"encoding/base64"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"net/mail"
	"strings"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/hostkey"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/site"
)

var appliedImage = metal3api.Image{URL: "http://172.22.0.1:6180/images/debian-13.raw", Checksum: "00", ChecksumType: "sha256"}

// applied is a host of kubectl as the API server has it, on hold or not.
func applied(held bool, change func(*metal3api.BareMetalHost)) *metal3api.BareMetalHost {
	h := host("compute-1", "", metal3api.StateNone)
	h.Spec.BMC = metal3api.BMCDetails{Address: "ipmi://172.31.1.17", CredentialsName: "compute-1-bmc-secret"}
	h.Spec.Image, h.Status.HardwareDetails = appliedImage.DeepCopy(), nil
	h.Annotations = map[string]string{}
	if held {
		h.Annotations[annotationPaused] = label.Hold
	}
	if change != nil {
		change(&h)
	}
	return &h
}

// inspectedWith completes a host by its inspection.
func inspectedWith(disks ...metal3api.Storage) func(*metal3api.BareMetalHost) {
	return func(h *metal3api.BareMetalHost) {
		h.Status.Provisioning.State = metal3api.StateAvailable
		h.Status.HardwareDetails = &metal3api.HardwareDetails{
			Storage: disks,
			NIC:     []metal3api.NIC{{MAC: "52:54:00:00:00:02"}, {MAC: "52:54:00:00:00:01", PXE: true}},
		}
	}
}

var oneDisk = metal3api.Storage{Name: "/dev/sda", SerialNumber: "S1", SizeBytes: 480 << 30}

// TestAppliedHostsGoTheWayOfTheSitesNodes: whatever the order in which a host is applied, registered and given its
// image, its steps are those of a node of the site, and the patch of each leaves nothing to the operator's guess.
func TestAppliedHostsGoTheWayOfTheSitesNodes(t *testing.T) {
	blank, full := Contents{"/dev/sda": {}}, Contents{"/dev/sda": {Kinds: []string{"gpt", "ext4"}, Fingerprint: "data-00000000000a"}}
	wanted := func(h *metal3api.BareMetalHost) {
		h.Spec.Image = nil
		h.Annotations[label.Wanted] = `{"url":"` + appliedImage.URL + `","checksum":"00","checksumType":"sha256"}`
	}
	both := func(all ...func(*metal3api.BareMetalHost)) func(*metal3api.BareMetalHost) {
		return func(h *metal3api.BareMetalHost) {
			for _, change := range all {
				change(h)
			}
		}
	}
	noImage := func(h *metal3api.BareMetalHost) { h.Spec.Image = nil }
	live := func(h *metal3api.BareMetalHost) { h.Status.Provisioning.State = metal3api.StateProvisioned }
	writing := func(h *metal3api.BareMetalHost) { h.Status.Provisioning.State = metal3api.StateProvisioning }
	in := func(state metal3api.ProvisioningState, cleared string) func(*metal3api.BareMetalHost) {
		return func(h *metal3api.BareMetalHost) {
			h.Status.Provisioning.State = state
			h.Annotations[label.Cleared] = cleared
		}
	}
	unmanaged := func(h *metal3api.BareMetalHost) {
		h.Spec.BMC, h.Spec.BootMACAddress = metal3api.BMCDetails{}, "52:54:00:00:00:01"
		h.Status.Provisioning.State = metal3api.StateUnmanaged
	}
	for name, c := range map[string]struct {
		have    *metal3api.BareMetalHost
		found   Contents
		same    string
		awaited string
		step    Step
		reason  Reason
		says    string // part of its sentence
	}{
		"new":                         {have: applied(true, nil), step: StepRegister},
		"new, without image":          {have: applied(true, noImage), step: StepRegister},
		"being registered":            {have: applied(false, wanted), step: StepWait},
		"image in one request, later": {have: applied(true, inspectedWith(oneDisk)), found: blank, step: StepImage},
		"inspected, image put aside":  {have: applied(false, both(inspectedWith(oneDisk), wanted)), found: blank, step: StepImage},
		"inspected, no image":         {have: applied(false, both(inspectedWith(oneDisk), noImage)), found: blank, step: StepApply},
		"its image was taken back":    {have: applied(true, both(inspectedWith(oneDisk), noImage)), found: blank, step: StepRelease},
		"disk not empty":              {have: applied(true, inspectedWith(oneDisk)), found: full, step: StepHold, reason: ReasonDiskNotEmpty},
		"two disks": {have: applied(true, inspectedWith(oneDisk, metal3api.Storage{Name: "/dev/sdb"})), found: blank,
			step: StepHold, reason: ReasonDiskAmbiguous},
		"the BMC of another host":       {have: applied(true, nil), same: "node-1", step: StepHold, reason: ReasonDecision},
		"user data that does not exist": {have: applied(true, nil), awaited: "metal3/x", step: StepRegister},
		"user data that does not exist yet": {have: applied(true, inspectedWith(oneDisk)), found: blank, awaited: "metal3/x",
			step: StepHold, reason: ReasonDecision},
		"a MAC, an image and no BMC": {have: applied(false, both(unmanaged, wanted)), step: StepHold, reason: ReasonDecision,
			says: "its BareMetalHost has no BMC: Metal3 does nothing with it; give it spec.bmc"},
		"a MAC, no BMC, and no image yet": {have: applied(false, both(unmanaged, noImage)), step: StepApply},
		"in service":                      {have: applied(false, both(inspectedWith(oneDisk), live)), step: StepApply},
		"being installed":                 {have: applied(false, both(inspectedWith(oneDisk), writing)), step: StepApply},
		"its checksum was changed meanwhile": {have: applied(true, both(
			inspectedWith(oneDisk), in(metal3api.StateProvisioning, "sha256:11  "+appliedImage.URL))), step: StepImage},
		"its image was changed meanwhile": {have: applied(true, both(
			inspectedWith(oneDisk), in(metal3api.StateProvisioning, "sha256:11  http://x/old.raw"))),
			step: StepHold, reason: ReasonDecision, says: `it is being installed with image "http://x/old.raw", and "` +
				appliedImage.URL + `" is named now, which Metal3 would take for what is on its disk; give spec.image as it was`},
		"its image was changed when its installation had failed": {have: applied(true, both(
			inspectedWith(oneDisk), in(metal3api.StateProvisioning, "sha256:11  http://x/old.raw"),
			func(h *metal3api.BareMetalHost) { h.Status.ErrorMessage = "no" })), step: StepImage},
		"its image was applied again while it is prepared": {have: applied(true, both(
			inspectedWith(oneDisk), in(metal3api.StatePreparing, clearedRegistration))), step: StepRegister},
		"an image while it is inspected again": {have: applied(true, both(
			inspectedWith(oneDisk), in(metal3api.StateInspecting, clearedRegistration))), step: StepRegister},
		"another image while the last is taken off": {have: applied(true, both(
			inspectedWith(oneDisk), in(metal3api.StateDeprovisioning, "sha256:11 raw http://x/"))), step: StepRegister},
		"being prepared, cleared by an earlier version": {have: applied(true, both(
			inspectedWith(oneDisk), in(metal3api.StatePreparing, appliedImage.URL))), step: StepImage},
		"being installed, cleared by an earlier version": {have: applied(true, both(
			inspectedWith(oneDisk), in(metal3api.StateProvisioning, appliedImage.URL))), step: StepImage},
		"being registered, given an image": {have: applied(true,
			in(metal3api.StateRegistering, clearedRegistration)), step: StepRegister},
		"being prepared, cleared by a later version that fell back": {have: applied(true, both(
			inspectedWith(oneDisk), in(metal3api.StatePreparing, "v9 "+appliedImage.URL))), step: StepRegister},
		"being installed, cleared by a later version that fell back": {have: applied(true, both(
			inspectedWith(oneDisk), in(metal3api.StateProvisioning, "v9 "+appliedImage.URL))), step: StepImage},
		"in service, cleared by an earlier version": {have: applied(false, both(
			inspectedWith(oneDisk), in(metal3api.StateProvisioned, appliedImage.URL))), step: StepApply},
		"another image for it": {have: applied(true, both(inspectedWith(oneDisk), live, func(h *metal3api.BareMetalHost) {
			h.Annotations[AllowWipe] = appliedImage.URL
		})), found: full, step: StepImage},
	} {
		n, err := NewAppliedObjects(&site.Site{Name: "rack-7"}, AppliedHost{Host: c.have, SameBMC: c.same, AwaitedSecret: c.awaited}, keysOnly())
		require.NoError(t, err, name)
		rec := HostBackup{Host: *c.have}
		d := decide(n, c.have, rec, c.found)
		assert.Equal(t, c.step, d.Step, "%s: %s", name, d.Sentence)
		assert.Equal(t, c.reason, d.Reason, "%s: %s", name, d.Sentence)
		assert.Contains(t, d.Sentence, c.says, name)
		assert.True(t, MaySwitchOn(c.have) || d.Step != StepRegister && d.Step != StepImage,
			"%s: no pre-flight is begun, for which its step waits after a restart", name)
	}
}

// TestAnAppliedHostThatIsTheApplianceStaysOnHold: with an image and without, and says why.
func TestAnAppliedHostThatIsTheApplianceStaysOnHold(t *testing.T) {
	ap := keysOnly()
	ap.MACs = []string{"52:54:00:00:00:01"}
	for _, image := range []*metal3api.Image{nil, appliedImage.DeepCopy()} {
		have := applied(true, func(h *metal3api.BareMetalHost) {
			h.Spec.Image, h.Spec.BootMACAddress = image, "52:54:00:00:00:01"
		})
		n, err := NewAppliedObjects(&site.Site{Name: "rack-7"}, AppliedHost{Host: have}, ap)
		require.NoError(t, err)
		d := decide(n, have, HostBackup{Host: *have}, nil)
		assert.Equal(t, StepHold, d.Step)
		assert.Contains(t, d.Sentence, "which never installs itself")
	}
}

// TestWhereOverwriteOfAHostIsSaid: of one that the site gives to Cluster API, in site.yaml.
func TestWhereOverwriteOfAHostIsSaid(t *testing.T) {
	full := Contents{"/dev/sda": {Kinds: []string{"gpt", "ext4"}, Fingerprint: "data-00000000000a"}}
	for cluster, isAnnotation := range map[string]bool{"": true, "edge": false} {
		have := applied(true, inspectedWith(oneDisk))
		if cluster != "" {
			have.Labels = map[string]string{label.Cluster: cluster}
		}
		n, err := NewAppliedObjects(&site.Site{Name: "rack-7"}, AppliedHost{Host: have}, keysOnly())
		require.NoError(t, err)
		d := decide(n, have, HostBackup{Host: *have}, full)
		assert.Equal(t, ReasonDiskNotEmpty, d.Reason)
		assert.Contains(t, d.Sentence, "for it in site.yaml")
		assert.Equal(t, isAnnotation, strings.Contains(d.Sentence, "this host is not in site.yaml"), d.Sentence)
	}
}

// TestAChecksumWithoutATypeIsNotTakenForMD5: Metal3 takes every one for that, and the document gives none.
func TestAChecksumWithoutATypeIsNotTakenForMD5(t *testing.T) {
	for sum, want := range map[string]string{
		strings.Repeat("0a", 64):          "sha512",
		strings.Repeat("0a", 32):          "sha256",
		strings.Repeat("0a", 16):          "auto",
		"http://172.22.0.2/image.sha256":  "auto",
		"http://172.22.0.2/image.raw.md5": "auto",
		"":                                "",
	} {
		have := applied(true, inspectedWith(oneDisk))
		have.Spec.Image.Checksum, have.Spec.Image.ChecksumType = sum, ""
		n, err := NewAppliedObjects(&site.Site{Name: "rack-7"}, AppliedHost{Host: have}, keysOnly())
		require.NoError(t, err)
		p, err := appliedPatch(StepImage, n, have, "")
		require.NoError(t, err)
		text, err := yaml.Marshal(p["spec"].(fields)["image"])
		require.NoError(t, err)
		if want == "" {
			want = "null"
		}
		assert.Contains(t, string(text), "checksumType: "+want+"\n", sum)
		assert.Contains(t, string(text), "format: null\n", "not one of the appliance's images")

		known := keysOnly()
		known.Images = map[string]Image{"debian-13": {URL: appliedImage.URL, Format: "raw"}}
		n, err = NewAppliedObjects(&site.Site{Name: "rack-7"}, AppliedHost{Host: have}, known)
		require.NoError(t, err)
		require.NotNil(t, n.Host.Spec.Image.DiskFormat)
		assert.Equal(t, "raw", *n.Host.Spec.Image.DiskFormat)
	}
}

func keysOnly() Appliance {
	return Appliance{
		Key: "ssh-ed25519 AAAA appliance",
	}
}

// A host of kubectl is pinned like a node of the site, unless its owner left Metal3's own check on.
func TestCertificatesOfAppliedHosts(t *testing.T) {
	for _, c := range []struct {
		address string
		off     bool
		site    site.CertificateCheck
		want    site.CertificateCheck
	}{
		{"redfish+https://10.0.0.5/redfish/v1/Systems/1", true, "", site.CheckPin},
		{"redfish://10.0.0.5/redfish/v1/Systems/1", true, site.CheckPin, site.CheckPin},
		{"redfish://10.0.0.5/redfish/v1/Systems/1", true, site.CheckCA, site.CheckPin},
		{"redfish://10.0.0.5/redfish/v1/Systems/1", true, site.CheckNone, site.CheckNone},
		{"redfish://10.0.0.5/redfish/v1/Systems/1", false, site.CheckPin, site.CheckCA},
		{"redfish+http://10.0.0.5/redfish/v1/Systems/1", true, "", ""},
		{"10.0.0.5", true, "", ""},
	} {
		h := applied(true, func(h *metal3api.BareMetalHost) {
			h.Spec.BMC.Address, h.Spec.BMC.DisableCertificateVerification = c.address, c.off
		})
		n := AppliedHost{Host: h, Default: c.site}.Node()
		assert.Equal(t, c.want, n.BMC.VerifyCertificate, "%+v", c)
	}
}

// A host whose node was taken out of the site keeps the check that the site had, so that it can be given up.
func TestCertificatesOfHostsThatTheSiteNamed(t *testing.T) {
	for _, c := range []struct {
		off        bool
		site, want site.CertificateCheck
	}{
		{false, "", site.CheckPin},
		{false, site.CheckPin, site.CheckPin},
		{false, site.CheckCA, site.CheckCA},
		{true, site.CheckNone, site.CheckNone},
	} {
		h := applied(true, func(h *metal3api.BareMetalHost) {
			h.Labels = map[string]string{LabelSite: "rack-7"}
			h.Spec.BMC.Address, h.Spec.BMC.DisableCertificateVerification = "redfish://10.0.0.5/redfish/v1/Systems/1", c.off
		})
		assert.Equal(t, c.want, AppliedHost{Host: h, Default: c.site}.Node().BMC.VerifyCertificate, "%+v", c)
	}
}

func TestAppliedPatches(t *testing.T) {
	patch := func(step Step, have *metal3api.BareMetalHost) string {
		n, err := NewAppliedObjects(&site.Site{Name: "rack-7"}, AppliedHost{Host: have, UserData: []byte("#!/bin/sh\n")}, keysOnly())
		require.NoError(t, err)
		p, err := appliedPatch(step, n, have, "")
		require.NoError(t, err)
		text, err := yaml.Marshal(p)
		require.NoError(t, err)
		return string(text)
	}
	assert.Equal(t, `metadata:
  annotations:
    baremetalhost.metal3.io/paused: null
    firstlight.dev/cleared: registration
    firstlight.dev/image: http://172.22.0.1:6180/images/debian-13.raw
    firstlight.dev/wanted-image: '{"url":"http://172.22.0.1:6180/images/debian-13.raw","checksum":"00","checksumType":"sha256"}'
  resourceVersion: ""
spec:
  image: null
`, patch(StepRegister, applied(true, nil)))
	assert.Equal(t, `metadata:
  annotations:
    baremetalhost.metal3.io/paused: null
    firstlight.dev/cleared: sha256:00  http://172.22.0.1:6180/images/debian-13.raw
    firstlight.dev/wanted-image: null
  resourceVersion: ""
spec:
  bootMACAddress: "52:54:00:00:00:01"
  image:
    checksum: "00"
    checksumType: sha256
    format: null
    url: http://172.22.0.1:6180/images/debian-13.raw
  metaData:
    name: compute-1-firstlight-meta-data
    namespace: metal3
  rootDeviceHints:
    serialNumber: S1
  userData:
    name: compute-1-firstlight-user-data
    namespace: metal3
`, patch(StepImage, applied(true, inspectedWith(oneDisk))))
	assert.Equal(t, "null\n", patch(StepApply, applied(false, func(h *metal3api.BareMetalHost) { h.Spec.BootMACAddress = "52:54:00:00:00:01" })))
}

// TestUserDataGetsItsKeysOnce: a host without user data of its own is given some; from then on that is what it has, and
// a second copy of the keys would hide the place of the host key from the ramdisk.
func TestUserDataGetsItsKeysOnce(t *testing.T) {
	have := &metal3api.BareMetalHost{}
	have.Name, have.Namespace = "compute-1", Namespace
	have.Spec.Image = &metal3api.Image{URL: "http://172.22.0.1:6180/images/a.raw"}
	first, err := NewAppliedObjects(&site.Site{Name: "rack-7"}, AppliedHost{Host: have}, keysOnly())
	require.NoError(t, err)
	require.NotNil(t, first.User)

	have.Spec.UserData = &corev1.SecretReference{Name: first.User.Name, Namespace: first.User.Namespace}
	given := AppliedHost{Host: have, UserData: first.User.Data["userData"]}
	again, err := NewAppliedObjects(&site.Site{Name: "rack-7"}, given, keysOnly())
	require.NoError(t, err)
	assert.Nil(t, again.User)
}

// TestTheAppliancesKeysFollowAHostsOwnUserData reads what is merged as cloud-init does: as a MIME message, whose parts
// are told apart by what they begin with.
func TestTheAppliancesKeysFollowAHostsOwnUserData(t *testing.T) {
	keys, err := keyData(keysOnly())
	require.NoError(t, err)
	parts := func(text string) []string {
		message, err := mail.ReadMessage(strings.NewReader(text))
		require.NoError(t, err)
		kind, params, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
		require.NoError(t, err)
		require.Equal(t, "multipart/mixed", kind)
		var all []string
		for r := multipart.NewReader(message.Body, params["boundary"]); ; {
			part, err := r.NextPart()
			if err == io.EOF {
				return all
			}
			require.NoError(t, err)
			body, err := io.ReadAll(part)
			require.NoError(t, err)
			if part.Header.Get("Content-Transfer-Encoding") == "base64" {
				body, err = base64.StdEncoding.DecodeString(strings.ReplaceAll(string(body), "\n", ""))
				require.NoError(t, err)
			}
			all = append(all, string(body))
		}
	}
	for _, own := range []string{"#cloud-config\nhostname: größer\n", "#!/bin/sh\necho hello\n", "#include\nhttp://x/y\n", "## template: jinja\n#cloud-config\n"} {
		merged, ok := mergeUserData(own, keys)
		require.True(t, ok, own)
		assert.Equal(t, []string{own, keys}, parts(merged))
		assert.True(t, hostkey.HasPlace([]byte(merged)), "the ramdisk does not find where the host key goes")
	}
	nested, ok := mergeUserData("Content-Type: multipart/mixed; boundary=\"x\"\nMIME-Version: 1.0\n\n--x\n\n#!/bin/sh\n--x--\n", keys)
	require.True(t, ok)
	assert.Len(t, parts(nested), 2)
	merged, ok := mergeUserData(" \n", keys)
	assert.True(t, ok)
	assert.Equal(t, keys, merged)
	for _, own := range []string{`{"ignition": {"version": "3.4.0"}}`, "\x1f\x8b\x08"} {
		_, ok := mergeUserData(own, keys)
		assert.False(t, ok, own)
	}
}

// TestTheSiteIsRememberedOfItsHosts: only a host that a site once named is called one that it names no more, also when
// its labels are gone; records of before know it by the label.
func TestTheSiteIsRememberedOfItsHosts(t *testing.T) {
	b := Backups{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	named, other := host("named", "", metal3api.StateProvisioned), host("other", "", metal3api.StateProvisioned)
	named.Labels = map[string]string{LabelSite: "rack-7"}
	require.NoError(t, b.Save(&named))
	require.NoError(t, b.Save(&other))
	named.Labels = nil
	require.NoError(t, b.Save(&named))
	records, err := b.Read()
	require.NoError(t, err)
	assert.False(t, IsApplied(&named, records["named"], false))
	assert.True(t, IsApplied(&other, records["other"], false))
	assert.False(t, IsApplied(&other, records["other"], true), "the site names it")
	require.NoError(t, b.Save(&named), "and again")
}

func TestSecretsOfAppliedHostsAreRestored(t *testing.T) {
	b := SecretBackups{Dir: t.TempDir() + "/hosts"}
	assert.Nil(t, b.Read("compute-1"))
	require.NoError(t, b.Save("compute-1", "compute-1-bmc-secret", map[string][]byte{"username": []byte("admin"), "password": []byte("x")}))
	got := b.Read("compute-1")
	require.NotNil(t, got)
	assert.Equal(t, "compute-1-bmc-secret", got.Name)
	assert.Equal(t, "admin", string(got.Data["username"]))
}
