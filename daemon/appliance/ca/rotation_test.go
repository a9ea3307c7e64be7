package ca

import (
	"bytes"
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

// client trusts what it was told once.
type client struct {
	t     *testing.T
	roots *x509.CertPool
}

func newClient(t *testing.T, trusted []byte) client {
	c := client{t, x509.NewCertPool()}
	require.True(t, c.roots.AppendCertsFromPEM(trusted))
	return c
}

// takes reports whether what the authority serves now is taken.
func (c client) takes(a *Authority) bool {
	c.t.Helper()
	issued, _, err := a.Issue("ironic", ironic())
	require.NoError(c.t, err)
	pair, err := tls.X509KeyPair(issued.Cert, issued.Key)
	require.NoError(c.t, err)
	_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: "ironic.metal3", Roots: c.roots, CurrentTime: day})
	return err == nil
}

func open(t *testing.T, dir string) *Authority {
	t.Helper()
	a, err := Open(dir, at(day))
	require.NoError(t, err)
	return a
}

func stageOf(a *Authority) Stage {
	stage, _ := a.Stage()
	return stage
}

func TestAnAuthorityIsReplaced(t *testing.T) {
	dir := t.TempDir()
	a := open(t, dir)
	assert.Equal(t, Stage(""), stageOf(a))
	before := newClient(t, a.PEM())
	require.NoError(t, a.BeginRotation())
	assert.Equal(t, Asked, stageOf(a))
	assert.ErrorIs(t, a.BeginRotation(), ErrRotating)
	assert.True(t, before.takes(a))
	assert.Equal(t, a.Current(), a.PEM(), "the next one is trusted before anybody may be told")

	require.NoError(t, a.Introduce("metal3"))
	assert.Equal(t, Introduced, stageOf(a))
	assert.ErrorIs(t, a.BeginRotation(), ErrRotating)
	assert.ErrorIs(t, a.ForgetFormer(), ErrRotating)
	assert.True(t, before.takes(a), "the next one signs before it is trusted")
	assert.Equal(t, string(a.Current())+string(a.Next()), string(a.PEM()))
	introduced := newClient(t, a.PEM())

	require.NoError(t, a.Switch())
	assert.Equal(t, Switched, stageOf(a))
	assert.ErrorIs(t, a.BeginRotation(), ErrRotating)
	assert.False(t, before.takes(a))
	assert.True(t, introduced.takes(a))
	after := newClient(t, a.Current())
	assert.True(t, after.takes(a))
	assert.True(t, newClient(t, a.PEM()).takes(a))
	assert.False(t, a.Permits("www.example.org"), "the next one is for the names that it was given")

	require.NoError(t, a.ForgetFormer())
	assert.Equal(t, Stage(""), stageOf(a))
	assert.Equal(t, a.Current(), a.PEM())
	assert.True(t, after.takes(a))
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	assert.Len(t, files, 4, "ca.crt, ca.key and the pair that was issued: %v", files)
	require.NoError(t, a.BeginRotation(), "another cannot begin")
}

// TestThePowerFailsWhileAnAuthorityIsReplaced between any two files that are written or removed. Then it is gone on with,
// and no client who was told to trust both refuses what is served, neither before nor after.
func TestThePowerFailsWhileAnAuthorityIsReplaced(t *testing.T) {
	dir := t.TempDir()
	a := open(t, dir)
	old := a.Current()
	require.NoError(t, a.BeginRotation())
	require.NoError(t, a.Introduce())
	introduced := filesOf(t, dir)
	both := newClient(t, a.PEM())
	require.NoError(t, a.Switch())
	switched := filesOf(t, dir)

	// with is what a cut leaves: some files as they are after Switch or after the end, the others as before.
	with := func(files map[string][]byte, names ...string) map[string][]byte {
		all := map[string][]byte{}
		for name, text := range files {
			all[name] = text
		}
		for _, name := range names {
			if text, there := switched[name]; there {
				all[name] = text
			} else {
				delete(all, name)
			}
		}
		return all
	}
	without := func(files map[string][]byte, names ...string) map[string][]byte {
		all := with(files)
		for _, name := range names {
			delete(all, name)
		}
		return all
	}
	for name, c := range map[string]struct {
		files map[string][]byte
		stage Stage
	}{
		"asked, and nothing else":                 {without(introduced, nextCert), Asked},
		"introduced":                              {introduced, Introduced},
		"the former is written":                   {with(introduced, formerCert), Introduced},
		"the next one's key is in place":          {with(introduced, formerCert, "ca.key"), Switched},
		"its certificate, too":                    {with(introduced, formerCert, "ca.key", "ca.crt"), Switched},
		"switched":                                {switched, Switched},
		"the next one is forgotten":               {without(switched, nextCert), Switched},
		"both are":                                {without(switched, nextCert, formerCert), ""},
		"an away copy with the key before":        {without(with(introduced, "ca.key"), formerCert), Switched},
		"an away copy without the next one's key": {without(introduced, nextKey), ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range c.files {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
			}
			a := open(t, dir)
			assert.Equal(t, c.stage, stageOf(a))
			assert.True(t, newClient(t, a.PEM()).takes(a))
			trusted, err := ReadTrusted(dir)
			require.NoError(t, err)
			assert.Equal(t, string(a.PEM()), string(trusted), "another process reads something else")
			if c.stage != Asked && c.stage != "" {
				assert.True(t, both.takes(a))
				assert.Equal(t, 2, bytes.Count(a.PEM(), []byte("BEGIN CERTIFICATE")))
			}

			for range 4 { // a daemon that is started anew for each step
				a = open(t, dir)
				switch stageOf(a) {
				case Asked:
					require.NoError(t, a.Introduce())
				case Introduced:
					require.NoError(t, a.Switch())
				case Switched:
					require.NoError(t, a.ForgetFormer())
				}
			}
			a = open(t, dir)
			assert.Equal(t, Stage(""), stageOf(a))
			assert.Equal(t, name == "an away copy without the next one's key", bytes.Equal(old, a.Current()))
			require.NoError(t, a.BeginRotation())
		})
	}
}

// filesOf are the files of a folder.
func filesOf(t *testing.T, dir string) map[string][]byte {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	all := map[string][]byte{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		all[e.Name()] = text
	}
	return all
}

// TestACertificateThatIsServedIsReplacedAtTheSwitch although its life has hardly begun.
func TestACertificateThatIsServedIsReplacedAtTheSwitch(t *testing.T) {
	a := open(t, t.TempDir())
	names := Names{Of: "registry", Addrs: []netip.Addr{netip.MustParseAddr("172.22.0.1")}}
	_, fresh, err := a.Issue("registry", names)
	require.NoError(t, err)
	require.True(t, fresh)
	require.NoError(t, a.BeginRotation())
	require.NoError(t, a.Introduce())
	_, fresh, err = a.Issue("registry", names)
	require.NoError(t, err)
	assert.False(t, fresh)
	require.NoError(t, a.Switch())
	_, fresh, err = a.Issue("registry", names)
	require.NoError(t, err)
	assert.True(t, fresh)
}

func TestAStageBeginsWithItsFile(t *testing.T) {
	dir := t.TempDir()
	a := open(t, dir)
	require.NoError(t, a.BeginRotation())
	require.NoError(t, a.Introduce())
	long := time.Now().Add(-time.Hour).Truncate(time.Second)
	require.NoError(t, os.Chtimes(filepath.Join(dir, nextCert), long, long))
	_, since := open(t, dir).Stage()
	assert.True(t, since.Equal(long), "a start of the daemon begins it anew: %s", since)
}
