package container

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLinksInDATALeadNowhereElse: who is root in the appliance could have a folder of the machine bound in there.
func TestLinksInDATALeadNowhereElse(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "state"), 0o755))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "state/etcd")))
	require.NoError(t, os.Chmod(outside, 0o711))
	data, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer data.Close()

	assert.ErrorContains(t, bindStateDir(data, "state/etcd", filepath.Join(dir, "target"), 0o700), "state/etcd")
	assert.NoDirExists(t, filepath.Join(dir, "target"))
	info, err := os.Stat(outside)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o711), info.Mode().Perm(), "its mode was changed")

	secret := filepath.Join(outside, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o600))
	require.NoError(t, os.Symlink(secret, filepath.Join(dir, "machine-id")))
	assert.ErrorContains(t, Plan{Data: dir}.writeFiles(t.TempDir()), "find machine-id")
}

// TestTheFirstProcessIsNotRunByHand: it would change the mounts of this machine.
func TestTheFirstProcessIsNotRunByHand(t *testing.T) {
	for _, stage := range []string{StageEnter, StageMount} {
		assert.ErrorContains(t, FirstProcess(nil, stage, "/nonsense"), "is not the first of its namespace")
	}
}
