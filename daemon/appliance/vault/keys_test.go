package vault

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
)

func TestKeysAreMintedOnceAndATornOneAnew(t *testing.T) {
	k := &Keys{Dir: t.TempDir()}
	one, err := k.Host("node1")
	require.NoError(t, err)
	again, err := (&Keys{Dir: k.Dir}).Host("node1")
	require.NoError(t, err)
	assert.Equal(t, one, again)
	other, err := k.Host("node2")
	require.NoError(t, err)
	assert.NotEqual(t, one.Public, other.Public)

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
