package builtin

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/manifest"
	"firstlight.dev/firstlight/daemon/engine/apply"
)

func TestAddOnsAreObjects(t *testing.T) {
	assert.Equal(t, []string{"multus", "network-policy", "nfd", "ovn", "ovn4nfv", "qat", "service-chain", "sriov", "tenants", "virtual-machines"}, Names())
	for _, name := range Names() {
		text, ok, err := Read(name)
		require.NoError(t, err)
		require.True(t, ok, name)
		assert.Contains(t, string(text), "image: "+manifest.NodeImage+"\n")
		_, err = apply.Read("test", text)
		assert.NoError(t, err, name)
	}

	for _, name := range []string{"emco", "", "*", "..", "nfd/nfd.yaml", "["} {
		_, ok, err := Read(name)
		assert.NoError(t, err, name)
		assert.False(t, ok, name)
	}
}
