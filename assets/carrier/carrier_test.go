package carrier

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/guest"
)

// TestEachCarrierHasItsWords by what systemd was told; another container is taken for a stick.
func TestEachCarrierHasItsWords(t *testing.T) {
	for name, restart := range map[string]string{
		"":                  "restart this machine: systemctl reboot",
		"podman\n":          "restart this machine: systemctl reboot",
		Installation + "\n": "restart the appliance: systemctl restart firstlight, on the machine",
		Try + "\n":          "restart the appliance: firstlight try shell systemctl reboot",
	} {
		root := t.TempDir()
		if name != "" {
			path := filepath.Join(root, containerFile)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(name), 0o644))
		}
		c := Read(root)
		assert.Contains(t, c.Restart, restart, name)
		assert.NotEmpty(t, c.Blank, name)
		assert.NotEmpty(t, c.Site, name)
	}

	t.Setenv(guest.Variable, "{}")
	assert.Contains(t, Read(t.TempDir()).Restart, "kubectl -n firstlight rollout restart deploy/firstlight")
}
