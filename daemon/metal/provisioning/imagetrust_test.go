package provisioning

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/signature"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

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
