package ca

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var day = time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)

func at(t time.Time) func() time.Time { return func() time.Time { return t } }

func ironic() Names {
	return Names{Of: "ironic", DNS: []string{"ironic.metal3"}, Addrs: []netip.Addr{netip.MustParseAddr("172.22.0.1")}}
}

func TestAuthorityIsMintedOnceAndKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	first, err := Open(dir, at(day))
	require.NoError(t, err)
	again, err := Open(dir, at(day.AddDate(20, 0, 0)))
	require.NoError(t, err)
	assert.Equal(t, first.PEM(), again.PEM())
	info, err := os.Stat(filepath.Join(dir, "ca.key"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	other, err := Open(filepath.Join(t.TempDir(), "pki"), at(day))
	require.NoError(t, err)
	assert.NotEqual(t, first.PEM(), other.PEM(), "every appliance differs")
}

func TestAuthorityIsNotReplacedWhenItsKeyIsForeign(t *testing.T) {
	dir, foreign := t.TempDir(), t.TempDir()
	for _, d := range []string{dir, foreign} {
		_, err := Open(d, at(day))
		require.NoError(t, err)
	}
	key, err := os.ReadFile(filepath.Join(foreign, "ca.key"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.key"), key, 0o600))
	_, err = Open(dir, at(day))
	assert.ErrorContains(t, err, "do not belong together")
}

func TestACutWhileMintingLeavesNoHalfAuthority(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(dir, at(day))
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(dir, "ca.crt")), "the certificate is written last")
	again, err := Open(dir, at(day))
	require.NoError(t, err)
	_, _, err = again.Issue("ironic", ironic())
	require.NoError(t, err)
}

func TestIssue(t *testing.T) {
	more := ironic()
	more.Addrs = append(more.Addrs, netip.MustParseAddr("10.0.0.9"))
	for _, c := range []struct {
		name  string
		when  time.Time
		names Names
		spoil func(dir string) error
		fresh bool
	}{
		{"as it was", day, ironic(), nil, false},
		{"two thirds of its life later", day.AddDate(0, 8, 5), ironic(), nil, true},
		{"years after its end", day.AddDate(10, 0, 0), ironic(), nil, true},
		{"clock set back ten years", day.AddDate(-10, 0, 0), ironic(), nil, false},
		{"clock at the epoch", time.Unix(0, 0), ironic(), nil, false},
		{"another address", day, more, nil, true},
		{"key torn off", day, ironic(), func(d string) error { return os.Truncate(filepath.Join(d, "ironic.key"), 20) }, true},
		{"certificate gone", day, ironic(), func(d string) error { return os.Remove(filepath.Join(d, "ironic.crt")) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			a, err := Open(dir, at(day))
			require.NoError(t, err)
			first, fresh, err := a.Issue("ironic", ironic())
			require.NoError(t, err)
			require.True(t, fresh)
			if c.spoil != nil {
				require.NoError(t, c.spoil(dir))
			}
			a, err = Open(dir, at(c.when))
			require.NoError(t, err)
			second, fresh, err := a.Issue("ironic", c.names)
			require.NoError(t, err)
			assert.Equal(t, c.fresh, fresh)
			assert.Equal(t, !c.fresh, string(first.Cert) == string(second.Cert))

			pair, err := tls.X509KeyPair(second.Cert, second.Key)
			require.NoError(t, err)
			for _, addr := range c.names.Addrs {
				_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: addr.String(), Roots: a.Pool(), CurrentTime: laterOf(c.when, notBefore.AddDate(0, 0, 1))})
				assert.NoError(t, err)
			}
		})
	}
}

// TestACertificateOfAnotherAuthorityIsNotServed: one from before the authority was lost holds no longer.
func TestACertificateOfAnotherAuthorityIsNotServed(t *testing.T) {
	dir := t.TempDir()
	lost, err := Open(dir, at(day))
	require.NoError(t, err)
	old, _, err := lost.Issue("ironic", ironic())
	require.NoError(t, err)
	for _, name := range []string{"ca.crt", "ca.key"} {
		require.NoError(t, os.Remove(filepath.Join(dir, name)))
	}

	a, err := Open(dir, at(day))
	require.NoError(t, err)
	pair, fresh, err := a.Issue("ironic", ironic())
	require.NoError(t, err)
	assert.True(t, fresh)
	assert.NotEqual(t, old.Cert, pair.Cert)
	cert, _, err := parsePair(pair.Cert, pair.Key)
	require.NoError(t, err)
	assert.NoError(t, cert.CheckSignatureFrom(a.cert))
}
