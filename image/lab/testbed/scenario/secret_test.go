package scenario_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// closed looks at all that the appliance keeps: no file that holds a BMC's password may be read by anybody
// but root. What containers are made from is left out: it is gigabytes, and the same on every appliance.
func closed(t *testing.T, d *scenario.Scenario) {
	t.Helper()
	top, password := d.Sandbox.DataPath("/"), []byte(d.Servers.Password())
	hidden := map[string]bool{} // folders that only root can pass
	var holders []string
	err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the appliance lives
		} else if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, filepath.Clean(top))
		if name == "/var/lib/containerd" {
			return fs.SkipDir
		}
		info, err := e.Info()
		if err != nil {
			return nil
		}
		if e.IsDir() {
			hidden[path] = hidden[filepath.Dir(path)] || info.Mode().Perm()&0o011 == 0
			return nil
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, password) {
			return nil
		}
		holders = append(holders, name)
		assert.True(t, hidden[filepath.Dir(path)] || info.Mode().Perm()&0o044 == 0, "%s holds a BMC's password and is readable by others: %s", name, info.Mode())
		return nil
	})
	require.NoError(t, err)
	t.Logf("files that hold a BMC's password: %s", strings.Join(holders, ", "))
	// The database, or what was not moved from its log into it yet.
	assert.Contains(t, strings.Join(holders, " "), "/var/lib/ironic/ironic.sqlite", "the search finds nothing")
}
