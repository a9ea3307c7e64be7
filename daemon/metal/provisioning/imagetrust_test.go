package provisioning

import (
	"bytes"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/signature"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/agentgate"
	"firstlight.dev/firstlight/daemon/metal/ironic"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// TestAnImageThatWasChangedIsNotWritten: an image that is signed when a host gets it, and whose checksum is edited
// then.
func TestAnImageThatWasChangedIsNotWritten(t *testing.T) {
	key, err := signature.NewPrivateKey()
	require.NoError(t, err)
	s := (&site.Site{Images: site.Images{
		Require: site.RequireSigned, Keys: []site.SigningKey{site.SigningKey(key.Public())},
	}}).WithDefaults()
	var failed error
	var texts []string
	told := ""
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if told == "" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(told))
	}))
	t.Cleanup(server.Close)
	p := New(Deps{
		Log:     slog.New(slog.DiscardHandler),
		Site:    func() *site.Site { return s },
		Uploads: func() (map[string]metal3.Image, []string, error) { return nil, texts, failed },
	})
	p.api = &ironic.Client{Access: func() (ironic.Access, error) {
		root := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
		return ironic.Access{Endpoint: server.URL, Username: "firstlight", Password: "secret", CA: root}, nil
	}}
	host := metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Namespace: metal3.Namespace}}
	host.Status.Provisioning.ID = "u-1"
	host.Spec.Image = &metal3api.Image{URL: "http://x/y", Checksum: strings.Repeat("0c", 32), ChecksumType: metal3api.SHA256}
	require.NoError(t, p.Hosts.Set([]metal3api.BareMetalHost{host}))

	refusal, err := p.mayWrite(t.Context(), "node-1", agentgate.WriteRequest{})
	require.NoError(t, err)
	assert.Contains(t, refusal, "is signed by none of images.keys")

	// It is signed, and Ironic was told to write another one.
	signed, err := key.Sign(t.Context(), strings.NewReader("debian"), "x.qcow2", "")
	require.NoError(t, err)
	texts = []string{signed.Text()}
	host.Spec.Image.Checksum = fmt.Sprintf("%x", sha256.Sum256([]byte("debian")))
	require.NoError(t, p.Hosts.Set([]metal3api.BareMetalHost{host}))
	_, err = p.mayWrite(t.Context(), "node-1", agentgate.WriteRequest{})
	require.ErrorContains(t, err, "Ironic has no node of host node-1")
	told = `{"instance_info": {"image_source": "http://x/y", "image_os_hash_algo": "sha256", "image_os_hash_value": "0c"}}`
	refusal, err = p.mayWrite(t.Context(), "node-1", agentgate.WriteRequest{})
	require.NoError(t, err)
	assert.Contains(t, refusal, "Ironic was told to write http://x/y with sha256 0c…, its image is ")
	told = strings.Replace(told, `"0c"`, `"`+host.Spec.Image.Checksum+`"`, 1)
	refusal, err = p.checkImage(t.Context(), &host)
	require.NoError(t, err)
	assert.Empty(t, refusal)

	failed = errors.New("catalog.json is torn")
	_, err = p.mayWrite(t.Context(), "node-1", agentgate.WriteRequest{})
	require.ErrorIs(t, err, failed, "no answer: it asks again")

	s = (&site.Site{}).WithDefaults()
	refusal, err = p.checkImage(t.Context(), &host)
	require.NoError(t, err)
	assert.Empty(t, refusal)
}

// TestOnlySignaturesByAKeyOfTheSiteCount, and only if the site asks for them.
func TestOnlySignaturesByAKeyOfTheSiteCount(t *testing.T) {
	sign := func(key signature.PrivateKey, text string) string {
		s, err := key.Sign(t.Context(), bytes.NewReader([]byte(text)), "x.qcow2", "")
		require.NoError(t, err)
		return s.Text()
	}
	key, err := signature.NewPrivateKey()
	require.NoError(t, err)
	other, err := signature.NewPrivateKey()
	require.NoError(t, err)
	digest := func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
	moved := strings.Replace(sign(key, "moved"), digest("moved"), digest("evil"), 1)
	texts := []string{sign(key, "debian"), sign(other, "foreign"), moved, "nonsense", ""}
	own := map[string]metal3.Image{"debian-13": {SHA256: "00ff"}}

	want := site.Images{Require: site.RequireSigned, Keys: []site.SigningKey{site.SigningKey(key.Public())}}
	assert.Equal(t, metal3.ImageTrust{
		Required: true,
		Own:      map[string]bool{"00ff": true},
		Signed:   map[string]bool{digest("debian"): true},
	}, imageTrust(want, own, texts))

	assert.False(t, imageTrust(site.Images{Require: "none"}, own, texts).Required)
	assert.False(t, imageTrust(site.Images{}, own, texts).Required)
}
