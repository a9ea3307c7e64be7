package virtualrack

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
	require.NoError(t, writeJSON(filepath.Join(dir, runningFile), runningFileDoc{
		Supervisor: before(stranger),
		Children:   []startedProcess{{"node-1", left.ID}, {"BMC of node-1", before(other)}, {"node-2", process.ID{}}},
	}))
	ended, err := TearDown(dir)
	require.NoError(t, err)
	require.Len(t, ended, 1)
	assert.Contains(t, ended[0], "node-1 (")
	assert.False(t, left.ID.Alive())
	assert.True(t, stranger.IsRunning())
	assert.True(t, other.IsRunning())

	ended, err = TearDown(dir)
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

	require.NoError(t, writeJSON(filepath.Join(dir, rackFile), rackDoc{Order: DefaultOrder(), Made: time.Now()}))
	require.NoError(t, writeJSON(filepath.Join(dir, runningFile), runningFileDoc{}))
	assert.ErrorContains(t, Remove(dir), "not down")
	_, err := TearDown(dir)
	require.NoError(t, err)
	require.NoError(t, Remove(dir))
	assert.FileExists(t, photos)
	assert.ErrorIs(t, Remove(dir), NoRack)
}

// TestOthersFilesStay: a rack neither moves in where something lies, nor takes it along when it goes.
func TestOthersFilesStay(t *testing.T) {
	o := DefaultOrder()
	o.Image = filepath.Join(t.TempDir(), "some.img")
	require.NoError(t, os.WriteFile(o.Image, nil, 0o600))
	dir := t.TempDir()
	photos := filepath.Join(dir, "photos")
	require.NoError(t, os.WriteFile(photos, nil, 0o600))
	assert.EqualError(t, Create(dir, "/bin/firstlight", o), "make rack: "+dir+" is not empty and holds no rack, but photos; name a new or an empty directory with --dir")
	own := t.TempDir() // a site that its owner wrote there
	require.NoError(t, os.WriteFile(filepath.Join(own, siteFile), []byte("name: mine\n"), 0o600))
	assert.ErrorContains(t, Create(own, "/bin/firstlight", o), "holds no rack, but site.yaml")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1, "nothing was made there")

	// A rack that was made there all the same, as before this was refused.
	require.NoError(t, writeRack(dir, "/bin/firstlight", o))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, machinesDir, Appliance), 0o700))
	capture := filepath.Join(dir, "bmc-20260102-150405.pcap")
	require.NoError(t, os.WriteFile(capture, nil, 0o600))
	require.NoError(t, Remove(dir))
	entries, err = os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	assert.FileExists(t, photos)

	// One that was cut off while it was made is made anew.
	begun := filepath.Join(t.TempDir(), "rack")
	require.NoError(t, writeRack(begun, "/bin/firstlight", o))
	require.NoError(t, os.Remove(filepath.Join(begun, rackFile)))
	assert.NoError(t, checkVacant(begun))
}
