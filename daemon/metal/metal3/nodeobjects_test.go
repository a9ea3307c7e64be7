package metal3

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/site"
)

func loadSite(t *testing.T, text []byte) *site.Site {
	t.Helper()
	s, problems := site.Load("site.yaml", text)
	require.Empty(t, problems)
	return s.WithDefaults()
}

func testAppliance() Appliance {
	return Appliance{
		Time:   []netip.Addr{netip.MustParseAddr("172.22.0.1")},
		Images: map[string]Image{"debian-13": {URL: "http://172.22.0.1:6180/images/debian-13.raw", SHA256: "00ff", Format: "raw"}},
		Key:    "ssh-ed25519 AAAA appliance",
		Hash:   func(p string) (string, error) { return fmt.Sprintf("$6$hash-of-%d-characters", len(p)), nil },
	}
}

func TestNodeBecomesItsObjects(t *testing.T) {
	text, err := os.ReadFile("testdata/site.yaml")
	require.NoError(t, err)
	s := loadSite(t, text)
	for _, n := range s.Nodes {
		h, err := NewNodeObjects(s, n, testAppliance())
		require.NoError(t, err)
		var out bytes.Buffer
		host, err := yaml.Marshal(map[string]any{"metadata": map[string]any{"name": h.Host.Name, "namespace": h.Host.Namespace, "labels": h.Host.Labels}, "spec": h.Host.Spec})
		require.NoError(t, err)
		fmt.Fprintf(&out, "%s# %s\n%s# %s\n%s\n", host, h.User.Name, h.User.Data["userData"], h.Network.Name, h.Network.Data["networkData"])
		goldentest.Check(t, "testdata/"+string(n.Name)+".yaml", out.Bytes())
		assert.NotContains(t, out.String(), "node-pass")
		assert.Equal(t, h.Host.Spec.Image.URL, ObjectForStep(StepCreate, h.Host, nil).Annotations[artifact.ImageAnnotation], "it has no image yet, and nobody may take it away")
		if n.BMC == nil {
			assert.Nil(t, h.BMC)
			continue
		}
		assert.Equal(t, "bmc-pass", string(h.BMC.Data["password"]))
		assert.Equal(t, string(n.Name)+"-bmc-secret", h.Host.Spec.BMC.CredentialsName)
	}
}

func TestNodeRefusesAnImageThatIsNotHere(t *testing.T) {
	s := loadSite(t, []byte(`nodes: [{name: a, macs: ["52:54:00:00:00:01"], os: {image: plan9}}]`))
	_, err := NewNodeObjects(s, s.Nodes[0], testAppliance())
	assert.EqualError(t, err, `node a: os.image "plan9" is not on this appliance; it has debian-13 (uploads by their full names, or by name and os.sha256)`)
}

// A name alone is whose upload comes first: it means the stick's image or none.
func TestAnUploadIsNamedInFullOrByItsDigest(t *testing.T) {
	const right, wrong = "00000000000000000000000000000000000000000000000000000000000000aa", "00000000000000000000000000000000000000000000000000000000000000bb"
	images := map[string]Image{
		"debian-13":           {URL: "stick", SHA256: "cc"},
		"alpha.beta.plan9":    {URL: "alpha", SHA256: right},
		"gamma.beta.plan9":    {URL: "gamma", SHA256: wrong},
		"mallory.x.debian-13": {URL: "mallory", SHA256: wrong},
	}
	for _, c := range []struct{ os, url, says string }{
		{"image: alpha.beta.plan9", "alpha", ""},
		{"image: plan9", "", "is not on this appliance"},
		{"image: plan9, sha256: " + right, "alpha", ""},
		{"image: plan9, sha256: " + wrong, "gamma", ""},
		{"image: debian-13", "stick", ""},
		{"image: debian-13, sha256: " + wrong, "", "not os.sha256"},
		{"image: alpha.beta.plan9, sha256: " + wrong, "", "not os.sha256"},
		{"image: other, sha256: " + right, "", "is not on this appliance"},
	} {
		s := loadSite(t, []byte(`nodes: [{name: a, macs: ["52:54:00:00:00:01"], os: {`+c.os+`}}]`))
		image, err := FindImage(s.Nodes[0], images)
		assert.Equal(t, c.url, image.URL, c.os)
		if c.says != "" {
			assert.ErrorContains(t, err, c.says, c.os)
		} else {
			assert.NoError(t, err, c.os)
		}
	}
}
