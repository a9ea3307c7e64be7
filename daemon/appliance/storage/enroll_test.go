package storage

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/bootchain"
)

// TestKeysThatWouldLockDataAreNotEnrolled: with other keys the TPM unseals nothing any more, and only what is attached
// and opens DATA counts.
func TestKeysThatWouldLockDataAreNotEnrolled(t *testing.T) {
	needCryptsetup(t)
	made := &machine{keyFile: ownKey}
	path, key := makeVolume(t, made)
	boot := stick.BootInfo{Partitions: []stick.Partition{{Name: stick.PartitionData, Path: path}}}
	none, own := &machine{left: -1}, &machine{left: -1, keyFile: ownKey}
	other := &machine{left: -1, keyFile: "that of another stick"}
	wouldLock := func(m *machine) bool { return m.preparer(t).wouldLock(t.Context(), boot) }
	assert.False(t, wouldLock(none), "no TPM opens it")

	v := volume{k: made.preparer(t), device: path}
	slot, err := v.addKey(t.Context(), key, mintKey(), stick.SealTPM)
	require.NoError(t, err)
	require.NoError(t, v.addToken(t.Context(), token{Way: stick.SealTPM, Slots: []string{slot}}))
	assert.False(t, wouldLock(own))
	assert.True(t, wouldLock(none), "no medium")
	assert.True(t, wouldLock(other), "the key file of another stick")
	assert.True(t, wouldLock(&machine{keyFile: ownKey}), "cryptsetup fails")

	require.NoError(t, os.WriteFile(path, make([]byte, 1<<20), 0o600))
	assert.False(t, wouldLock(none), "an earlier version made it, without encryption")
	assert.False(t, none.preparer(t).wouldLock(t.Context(), stick.BootInfo{}), "there is none")
}

// TestTriesToEnrollAreCounted on SITE, where a restart leaves them. What nobody can read ends them.
func TestTriesToEnrollAreCounted(t *testing.T) {
	k := Preparer{SiteDir: t.TempDir(), WriteSite: func(dir, name string, text []byte, check func() error) error {
		require.NoError(t, check())
		return os.WriteFile(filepath.Join(dir, name), text, 0o600)
	}}
	assert.Zero(t, k.readTries())
	for tries := 1; tries <= bootchain.MaxTries; tries++ {
		require.NoError(t, k.saveTries(k.readTries()+1))
		assert.Equal(t, tries, k.readTries())
	}
	require.NoError(t, k.saveTries(0))
	assert.Zero(t, k.readTries())

	require.NoError(t, os.WriteFile(filepath.Join(k.SiteDir, stick.EnrollTriesName), []byte("many"), 0o600))
	assert.Equal(t, bootchain.MaxTries, k.readTries())
	k.WriteSite = nil
	require.ErrorContains(t, k.saveTries(1), "SITE is not mounted")
}
