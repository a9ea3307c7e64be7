package registry

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheUnitAllowsWhatIsNeeded and no more: its user, the folders that this package names, one capability, and none
// of the appliance's secrets.
func TestTheUnitAllowsWhatIsNeeded(t *testing.T) {
	const overlay = "../../../overlays/appliance/usr/lib/"
	text, err := os.ReadFile(overlay + "systemd/system/" + Unit)
	require.NoError(t, err)
	has := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, found := strings.Cut(strings.TrimSpace(line), "="); found && !strings.HasPrefix(key, "#") {
			has[key] = append(has[key], strings.Fields(value)...)
		}
	}
	p := NewProcess(nil)
	for key, want := range map[string]string{
		"User":                  User,
		"Group":                 User,
		"StateDirectory":        strings.TrimPrefix(p.Store, "/var/lib/"),
		"RuntimeDirectory":      strings.TrimSuffix(strings.TrimPrefix(p.Metrics, "/run/"), "/metrics.sock"),
		"CapabilityBoundingSet": "CAP_DAC_READ_SEARCH",
		"AmbientCapabilities":   "CAP_DAC_READ_SEARCH",
		"NoNewPrivileges":       "yes",
		"ProtectSystem":         "strict",
	} {
		assert.Equal(t, []string{want}, has[key], key)
	}
	for _, secret := range []string{"ca", "secret", "ssh"} {
		assert.Contains(t, has["InaccessiblePaths"], "-/var/lib/firstlight/"+secret)
	}
	assert.NotContains(t, has, "ReadWritePaths")

	users, err := os.ReadFile(overlay + "sysusers.d/firstlight.conf")
	require.NoError(t, err)
	assert.Contains(t, string(users), "\nu "+User+" 590 ")
}
