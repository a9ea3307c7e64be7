package registry

import (
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/appliance/ca"
)

// settingsOf are settings for one address, with a certificate that an authority signed.
func settingsOf(t *testing.T, a authority, prefix string) Settings {
	p := netip.MustParsePrefix(prefix)
	pair, err := a.Sign(ca.Names{Of: "registry", Addrs: []netip.Addr{p.Addr()}})
	require.NoError(t, err)
	return Settings{
		Addrs:     []netip.Prefix{p},
		Pair:      slices.Concat(pair.Cert, pair.Key),
		Authority: a.PEM(),
		Packages:  []byte("a key\n"),
	}
}

func TestSettingsAreReadAsTheyWereWritten(t *testing.T) {
	a := newAuthority(t)
	addr := netip.MustParseAddr
	for name, x := range map[string]struct {
		known  []netip.Addr
		owners map[netip.Addr]string
	}{
		"nobody":      {},
		"nodes":       {known: []netip.Addr{addr("172.22.0.11"), addr("172.22.0.12")}},
		"no clusters": {owners: map[netip.Addr]string{}},
		"owners": {
			known:  []netip.Addr{addr("172.22.0.11")},
			owners: map[netip.Addr]string{addr("172.22.0.11"): "alpha", addr("172.22.0.9"): "beta"},
		},
	} {
		s := settingsOf(t, a, "172.22.0.1/24")
		s.Known, s.Owners = x.known, x.owners
		dir := filepath.Join(t.TempDir(), "registry")
		require.NoError(t, s.Write(dir, os.Getgid()), name)
		got, err := readSettings(dir)
		require.NoError(t, err, name)
		assert.Equal(t, s.Addrs, got.addrs, name)
		assert.Equal(t, s.Authority, got.authority, name)
		assert.Equal(t, s.Packages, got.packages, name)
		assert.NoError(t, got.certificate.Leaf.VerifyHostname("172.22.0.1"), name)
		assert.Len(t, got.known, len(x.known), name)
		for _, k := range x.known {
			assert.True(t, got.known[k], name)
		}
		assert.Len(t, got.owners, len(x.owners), name)
		for at, owner := range x.owners {
			assert.Equal(t, owner, got.owners[at], name)
		}
	}
}

func TestSettingsAreForOneGroupAndWrittenWhenTheyChange(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "registry")
	s := settingsOf(t, newAuthority(t), "172.22.0.1/24")
	s.Owners = map[netip.Addr]string{netip.MustParseAddr("172.22.0.11"): "alpha"}
	require.NoError(t, s.Write(dir, os.Getgid()))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	assert.Equal(t, fs.ModeDir|fs.ModeSetgid|0o750, info.Mode())
	times := func() map[string]time.Time {
		all := map[string]time.Time{}
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, f := range files {
			info, err := f.Info()
			require.NoError(t, err)
			assert.Equal(t, fs.FileMode(0o640), info.Mode(), f.Name())
			all[f.Name()] = info.ModTime()
		}
		return all
	}
	before := times()
	time.Sleep(20 * time.Millisecond)
	s.Known = []netip.Addr{netip.MustParseAddr("172.22.0.11")}
	s.Owners = nil // the daemon was started again, and has not asked for clusters yet
	require.NoError(t, s.Write(dir, os.Getgid()))
	after := times()
	assert.NotEqual(t, before[knownName], after[knownName])
	delete(before, knownName)
	delete(after, knownName)
	assert.Equal(t, before, after)
	got, err := readSettings(dir)
	require.NoError(t, err)
	assert.Equal(t, "alpha", got.owners[netip.MustParseAddr("172.22.0.11")])
}

func TestWrongSettingsAreRefused(t *testing.T) {
	for name, wrong := range map[string]string{
		addressesName: "172.22.0.1\n",
		pairName:      "-----BEGIN CERTIFICATE-----\n",
		authorityName: "",
		knownName:     "everybody\n",
		ownersName:    "172.22.0.11\n",
	} {
		dir := t.TempDir()
		require.NoError(t, settingsOf(t, newAuthority(t), "172.22.0.1/24").Write(dir, os.Getgid()))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(wrong), 0o644))
		_, err := readSettings(dir)
		assert.ErrorContains(t, err, name)
	}
	_, err := readSettings(t.TempDir())
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

// TestTheFollowerTakesUpWhatChanges, also two changes at one time, and keeps the last settings that were whole.
func TestTheFollowerTakesUpWhatChanges(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "registry")
	f := &follower{dir: dir, log: slog.New(slog.DiscardHandler)}
	_, ok := f.place()
	assert.False(t, ok, "there are none")

	a := newAuthority(t)
	s := settingsOf(t, a, "172.22.0.1/24")
	require.NoError(t, s.Write(dir, os.Getgid()))
	at, ok := f.place()
	assert.True(t, ok)
	assert.Equal(t, s.Addrs, at)
	assert.Equal(t, string(a.PEM()), string(f.now.Load().authority))
	assert.Equal(t, "a key\n", string(f.now.Load().packages))

	info, err := os.Stat(dir)
	require.NoError(t, err)
	node := netip.MustParseAddr("172.22.0.11")
	s.Known = []netip.Addr{node}
	require.NoError(t, s.Write(dir, os.Getgid()))
	require.NoError(t, os.Chtimes(dir, info.ModTime(), info.ModTime()))
	same, _ := f.place()
	assert.Equal(t, at, same, "nothing begins anew for that")
	assert.True(t, f.now.Load().known[node])

	last := f.now.Load()
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(dir, old, old))
	f.refresh(time.Now())
	taken := f.now.Load()
	assert.NotSame(t, last, taken)
	f.refresh(time.Now())
	assert.Same(t, taken, f.now.Load(), "what did not change is not read")

	require.NoError(t, os.WriteFile(filepath.Join(dir, pairName), []byte("half"), 0o600))
	require.NoError(t, os.Chtimes(dir, time.Now(), time.Now()))
	f.refresh(time.Now())
	assert.Same(t, taken, f.now.Load())
	require.NoError(t, settingsOf(t, a, "10.7.0.1/24").Write(dir, os.Getgid()))
	at, ok = f.place()
	assert.True(t, ok)
	assert.Equal(t, "10.7.0.1/24", at[0].String())
}
