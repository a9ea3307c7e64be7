package virtualrack

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMakeCleanKeepsARackThatIsOn: without its files nobody could end it any more.
func TestMakeCleanKeepsARackThatIsOn(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("runs make: ", err)
	}
	makefile, err := filepath.Abs("../../../Makefile")
	require.NoError(t, err)
	top := t.TempDir()
	rack := filepath.Join(top, "build", "lab")
	require.NoError(t, os.MkdirAll(rack, 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(top, "bin"), 0o755))
	require.NoError(t, writeJSON(filepath.Join(rack, runningFile), runningFileDoc{}))
	clean := func() (string, error) {
		out, err := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-C", top, "-f", makefile, "clean").CombinedOutput()
		return string(out), err
	}
	out, err := clean()
	require.Error(t, err)
	assert.Contains(t, out, "clean: the rack in build/lab is not down; end it first: bin/firstlight lab --dir build/lab down --remove\n")
	assert.FileExists(t, filepath.Join(rack, runningFile))
	assert.DirExists(t, filepath.Join(top, "bin"))

	_, err = TearDown(rack)
	require.NoError(t, err)
	out, err = clean()
	require.NoError(t, err, out)
	assert.NoDirExists(t, filepath.Join(top, "build"))
	assert.NoDirExists(t, filepath.Join(top, "bin"))
}
