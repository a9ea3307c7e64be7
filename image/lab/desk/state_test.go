package desk

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/process"
)

func sleeper(t *testing.T) *process.Child {
	c, err := process.Start(exec.Command("sleep", "1000"))
	require.NoError(t, err)
	t.Cleanup(c.Kill)
	return c
}

// TestDownEndsExactlyWhatWasStarted: a crash has left a machine; meanwhile the number of the
// supervisor and that of a BMC were given to strangers.
func TestDownEndsExactlyWhatWasStarted(t *testing.T) {
	dir := t.TempDir()
	left, stranger, other := sleeper(t), sleeper(t), sleeper(t)
	before := func(c *process.Child) process.ID {
		id := c.ID
		id.Start--
		return id
	}
	require.NoError(t, writeJSON(filepath.Join(dir, runningFile), running{
		Supervisor: before(stranger),
		Children:   []started{{"node-1", left.ID}, {"BMC of node-1", before(other)}, {"node-2", process.ID{}}},
	}))
	ended, err := Down(dir)
	require.NoError(t, err)
	require.Len(t, ended, 1)
	assert.Contains(t, ended[0], "node-1 (")
	assert.False(t, left.ID.Alive())
	assert.True(t, stranger.Running())
	assert.True(t, other.Running())

	ended, err = Down(dir)
	require.NoError(t, err)
	assert.Empty(t, ended)
}

func TestRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "rack")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	photos := filepath.Join(dir, "photos")
	require.NoError(t, os.WriteFile(photos, nil, 0o600))
	assert.ErrorIs(t, Remove(dir), NoRack)
	assert.FileExists(t, photos)

	require.NoError(t, writeJSON(filepath.Join(dir, rackFile), made{Order: Defaults(), Made: time.Now()}))
	require.NoError(t, writeJSON(filepath.Join(dir, runningFile), running{}))
	assert.ErrorContains(t, Remove(dir), "not down")
	_, err := Down(dir)
	require.NoError(t, err)
	require.NoError(t, Remove(dir))
	assert.NoDirExists(t, dir)
}
