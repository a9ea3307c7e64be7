package bmctrust

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
)

const endpoint = "10.0.0.5:443"

// certificate is one as BMCs make it themselves: for a name that is not its address, and expired.
func certificate(t *testing.T) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "idrac-serial"},
		NotBefore:    time.Unix(0, 0),
		NotAfter:     time.Unix(1, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func newPins(dir string) *Pins { return &Pins{Dir: dir, Log: slog.New(slog.DiscardHandler)} }

func pinned(address string) site.BMC {
	return site.BMC{Address: site.BMCAddress(address), VerifyCertificate: site.CheckPin}
}

func TestAPinOutlivesTheDaemon(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hosts", "bmc")
	first, second, third := certificate(t).Leaf, certificate(t).Leaf, certificate(t).Leaf
	require.NoError(t, newPins(dir).Check(endpoint, first))
	require.NoError(t, newPins(dir).Check(endpoint, first))

	p := newPins(dir)
	kicks := 0
	p.Changed = func(string) { kicks++ }
	for range 2 {
		var change Change
		require.ErrorAs(t, p.Check(endpoint, second), &change)
		assert.Equal(t, Fingerprint(first), change.Pinned)
		assert.Equal(t, Fingerprint(second), change.Other)
		for _, print := range []string{change.Pinned, change.Other} {
			assert.Contains(t, change.Text(), print)
		}
		assert.Contains(t, change.Fix("node-1"), "firstlightd bmc trust node-1 "+change.Other)
	}
	assert.Equal(t, 1, kicks, "the same is told once")

	again := newPins(dir) // and the daemon starts again
	change, is := again.Change(pinned("redfish://10.0.0.5/redfish/v1/Systems/1"))
	require.True(t, is)
	assert.Equal(t, Fingerprint(second), change.Other)
	assert.Len(t, again.Changes(), 1)

	offered, err := again.Offer(endpoint)
	require.NoError(t, err)
	assert.Equal(t, encodePEM(second), offered.Certificate)
	_, err = again.Trust(endpoint, "")
	require.ErrorContains(t, err, "64 hexadecimal digits", "accepted unseen")
	_, err = again.Trust(endpoint, Fingerprint(third))
	require.ErrorContains(t, err, "shows another certificate than that: sha256 "+Fingerprint(second))
	_, err = again.Trust(endpoint, "abc")
	require.ErrorContains(t, err, "64 hexadecimal digits")
	_, err = again.Trust(endpoint, "SHA256:"+Fingerprint(second))
	require.NoError(t, err)
	for _, p := range []*Pins{again, newPins(dir)} {
		require.NoError(t, p.Check(endpoint, second))
		assert.Error(t, p.Check(endpoint, first), "the one before is not trusted any more")
	}
}

func TestABMCThatIsItselfAgainIsNotHeld(t *testing.T) {
	p, first, second := newPins(t.TempDir()), certificate(t).Leaf, certificate(t).Leaf
	require.NoError(t, p.Check(endpoint, first))
	require.Error(t, p.Check(endpoint, second))
	require.NoError(t, p.Check(endpoint, first))
	assert.Empty(t, p.Changes())
	_, err := p.Trust(endpoint, Fingerprint(first))
	require.ErrorContains(t, err, "shows the certificate that is pinned")
	_, err = p.Trust("10.0.0.6:443", Fingerprint(first))
	require.ErrorContains(t, err, "was not asked yet")
	_, err = p.Offer(endpoint)
	require.ErrorContains(t, err, "shows the certificate that is pinned")
}

// A power cut leaves the record whole or not there; what a torn one says is decided by a person.
func TestATornRecordIsNoFirstContact(t *testing.T) {
	dir := t.TempDir()
	p, leaf := newPins(dir), certificate(t).Leaf
	require.NoError(t, p.Check(endpoint, leaf))
	require.NoError(t, os.Truncate(p.path(endpoint), 20))

	p = newPins(dir)
	var change Change
	require.ErrorAs(t, p.Check(endpoint, leaf), &change)
	assert.Contains(t, change.Text(), p.path(endpoint))
	assert.Contains(t, change.Text(), Fingerprint(leaf))
	_, err := p.Trust(endpoint, Fingerprint(leaf))
	require.NoError(t, err)
	require.NoError(t, p.Check(endpoint, leaf))
	require.NoError(t, newPins(dir).Check(endpoint, leaf))
}

func TestNothingIsTrustedThatIsNotOnTheMedium(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	p, leaf := newPins(dir), certificate(t).Leaf
	for range 2 {
		require.ErrorIs(t, p.Check(endpoint, leaf), ErrNotRecorded)
	}
	require.NoError(t, os.Remove(dir))
	require.NoError(t, p.Check(endpoint, leaf))
}

func TestRecordsHoldNoSecrets(t *testing.T) {
	p := newPins(t.TempDir())
	require.NoError(t, p.Check("[fd00::5]:443", certificate(t).Leaf))
	text, err := os.ReadFile(p.path("[fd00::5]:443"))
	require.NoError(t, err)
	assert.False(t, bytes.Contains(text, []byte("PRIVATE")))
	require.NoError(t, newPins(p.Dir).Check("[fd00::6]:443", certificate(t).Leaf), "another BMC is another record")
}
