package try

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheUsersSystemdIsFound also by who became the user by su or sudo.
func TestTheUsersSystemdIsFound(t *testing.T) {
	assert.Equal(t, []string{"A=b", "XDG_RUNTIME_DIR=/run/user/1000"}, superviseEnvironment(1000, []string{"A=b"}))
	assert.Equal(t, []string{"XDG_RUNTIME_DIR=/x"}, superviseEnvironment(1000, []string{"XDG_RUNTIME_DIR=/x"}))
	assert.Equal(t, []string{"A=b"}, superviseEnvironment(0, []string{"A=b"}))
}

// TestFilesAreUnpackedAndRemovedByOneAtATime: a second call would take a root for whole that the first still writes.
func TestFilesAreUnpackedAndRemovedByOneAtATime(t *testing.T) {
	r := Rack{Dir: t.TempDir()}
	image := filepath.Join(t.TempDir(), "image")
	require.NoError(t, os.WriteFile(image, []byte("hsqs"), 0o644))
	require.NoError(t, os.Chmod(r.Dir, 0o700))
	require.NoError(t, r.Create(Order{Image: image}))
	lock, err := r.lockFiles()
	require.NoError(t, err)
	const refused = "another firstlight try unpacks or removes the rack in "
	assert.ErrorContains(t, r.Unpack(t.Context(), nil), refused+r.Dir)
	assert.ErrorContains(t, r.Remove(t.Context(), nil), refused+r.Dir)
	assert.FileExists(t, r.path(rackFile))
	require.NoError(t, lock.Close())
	again, err := r.lockFiles()
	require.NoError(t, err)
	require.NoError(t, again.Close())
}
