package builtin

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/engine/apply"
)

var image = regexp.MustCompile(`image: firstlight\.internal/([a-z0-9-]+):(\S+)`)

func TestAddOnsAreObjects(t *testing.T) {
	recipe, err := os.ReadFile("../../../../assets/recipe.yaml")
	require.NoError(t, err)
	assert.Equal(t, []string{
		"local-path-provisioner", "metrics-server", "multus", "network-policy", "nfd", "ovn", "ovn4nfv", "qat", "service-chain",
		"service-chain-ovn4nfv", "sriov", "tenants", "virtual-machines",
	}, Names())
	for _, name := range Names() {
		text, ok, err := Read(name)
		require.NoError(t, err)
		require.True(t, ok, name)
		found := image.FindAllStringSubmatch(string(text), -1)
		assert.NotEmpty(t, found, name)
		for _, m := range found {
			assert.Regexp(t, `name: `+m[1]+`[,\n]\s*tags: \["?`+regexp.QuoteMeta(m[2])+`"?\]`, string(recipe), "%s: image %s is not on the stick", name, m[1])
		}
		_, err = apply.Read("test", text)
		assert.NoError(t, err, name)
	}

	for _, name := range []string{"emco", "", "*", "..", "nfd/nfd.yaml", "["} {
		_, ok, err := Read(name)
		assert.NoError(t, err, name)
		assert.False(t, ok, name)
	}
}
