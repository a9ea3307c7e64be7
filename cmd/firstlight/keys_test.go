package main

import (
	"os"
	"path/filepath"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestARecoveryKeyIsMadeOnce(t *testing.T) {
	name := filepath.Join(t.TempDir(), "key")
	out, _, err := command(t, "", "keys", "new", name)
	require.NoError(t, err)
	info, err := os.Stat(name)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	keys, err := age.ParseIdentities(f)
	require.NoError(t, err)
	require.Len(t, keys, 1)
	key, ok := keys[0].(*age.X25519Identity)
	require.True(t, ok)
	assert.Equal(t, key.Recipient().String()+"\n", out)

	before, err := os.ReadFile(name)
	require.NoError(t, err)
	_, _, err = command(t, "", "keys", "new", name)
	require.ErrorContains(t, err, "file exists")
	after, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, before, after)
}
