package vault

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
)

func TestTheAccessKeyIsMintedOnceAndATornOneAgain(t *testing.T) {
	k := &Keys{Dir: t.TempDir()}
	access, err := k.AccessPublicKey()
	require.NoError(t, err)
	text, err := os.ReadFile(k.AccessFile())
	require.NoError(t, err)
	signer, err := ssh.ParsePrivateKey(text)
	require.NoError(t, err)
	public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(access))
	require.NoError(t, err)
	assert.Equal(t, signer.PublicKey().Marshal(), public.Marshal())
	info, err := os.Stat(k.AccessFile())
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	require.NoError(t, os.Truncate(k.AccessFile(), 50))
	minted, err := k.AccessPublicKey()
	require.NoError(t, err)
	assert.NotEqual(t, access, minted)
}

// TestHostKeysAreWhatRamdisksTold: the newest counts, also after a restart; a node that was installed with a key that
// an earlier version minted has that one, until it is installed again.
func TestHostKeysAreWhatRamdisksTold(t *testing.T) {
	k := &Keys{Dir: t.TempDir()}
	_, err := k.HostPublicKey("node1")
	require.ErrorIs(t, err, ErrNoHostKey)
	assert.NoFileExists(t, filepath.Join(k.Dir, "hosts", "node1"), "a key was minted")

	minted, err := k.pair(filepath.Join(k.Dir, "hosts", "node1"), "node1")
	require.NoError(t, err)
	public, err := k.HostPublicKey("node1")
	require.NoError(t, err)
	assert.Equal(t, minted.Public, authorizedKey(public, "node1"))

	for _, name := range []string{"first", "second"} {
		told, err := k.pair(filepath.Join(t.TempDir(), name), "x")
		require.NoError(t, err)
		read, _, _, _, err := ssh.ParseAuthorizedKey([]byte(told.Public))
		require.NoError(t, err)
		require.NoError(t, k.SaveHostKey("node1", authorizedKey(read, "")))
		public, err := (&Keys{Dir: k.Dir}).HostPublicKey("node1")
		require.NoError(t, err)
		assert.Equal(t, read.Marshal(), public.Marshal())
		assert.NoFileExists(t, filepath.Join(k.Dir, "hosts", "node1"), "the key of a system that is overwritten")
	}

	require.NoError(t, k.SaveHostKey("node1", ""))
	_, err = k.HostPublicKey("node1")
	require.ErrorIs(t, err, ErrNoHostKey)
	require.NoError(t, k.SaveHostKey("node1", ""))

	require.NoError(t, os.WriteFile(filepath.Join(k.Dir, "known", "node1.pub"), []byte("torn"), 0o600))
	_, err = k.HostPublicKey("node1")
	assert.ErrorContains(t, err, "read host key of node1")
}
