package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/daemon/appliance/vault"
)

// TestABundleOffTheApplianceAsksNoOne: on a workstation there is nothing to collect, and nothing is made for it: no
// authority, no password, and no one is asked at the address that an appliance would have.
func TestABundleOffTheApplianceAsksNoOne(t *testing.T) {
	if _, err := os.Stat(vault.SecretDir); err == nil {
		t.Skip("this machine has the state of an appliance")
	}

	c := NewCollector(t.Context(), filepath.Join(t.TempDir(), "no-socket"), nil)
	for _, s := range c.Sources {
		assert.NotEqual(t, "ironic.json", s.Name)
		_, err := s.Get(t.Context())
		if s.Name == "nodes" {
			assert.ErrorContains(t, err, "the state of no appliance is here")
		}
	}
	assert.NoDirExists(t, vault.SecretDir)
}
