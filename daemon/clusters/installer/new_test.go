package installer

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/engine/bringup"
)

func TestOnlyWhatAPersonMustMendRefusesARun(t *testing.T) {
	dir := t.TempDir()
	_, err := New(Config{Dir: dir})
	assert.True(t, bringup.IsPermanent(err), "no inventory: %v", err)
	path := filepath.Join(dir, "hosts.ini")
	require.NoError(t, os.WriteFile(path, []byte("[rubbish"), 0o644))
	_, err = New(Config{Dir: dir})
	assert.True(t, bringup.IsPermanent(err), "rubbish: %v", err)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Mkdir(path, 0o755)) // its read fails, as that of a bad sector does
	_, err = New(Config{Dir: dir})
	require.Error(t, err)
	assert.False(t, bringup.IsPermanent(err), "a read that failed once ends the run for good: %v", err)
}
