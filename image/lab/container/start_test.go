package container

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAnApplianceIsStartedWhenItHasItsRoot: a command that enters it before would run on this machine's.
func TestAnApplianceIsStartedWhenItHasItsRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root for namespaces")
	}
	dir := t.TempDir()
	plan := Plan{Mount: filepath.Join(dir, "mount"), Data: filepath.Join(dir, "data")}
	const first = `echo; read -r line; sleep 0.5; touch "$2.entered"; exec sleep 3600 >/dev/null`
	connected := false
	appliance, err := Start(plan, filepath.Join(dir, "plan.json"), []string{"sh", "-c", first, "sh"}, func(int) error {
		connected = true
		assert.NoFileExists(t, filepath.Join(dir, "plan.json.entered"))
		return nil
	})
	require.NoError(t, err)
	t.Cleanup(appliance.Kill)
	assert.True(t, connected)
	assert.FileExists(t, filepath.Join(dir, "plan.json.entered"))
	assert.True(t, appliance.IsRunning())
}
