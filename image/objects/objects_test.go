package objects

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSelect(t *testing.T) {
	const manifest = "kind: Service\nmetadata:\n  name: a\n---\n" +
		"kind: Service\nmetadata: {name: b}\n---\n# kept as it stands\nkind: Role\nmetadata: {name: c}\n---\nkind: Deployment\n"
	got, err := Select(manifest, []string{"Role", "Service/b"})
	require.NoError(t, err)
	assert.Equal(t, "kind: Service\nmetadata: {name: b}\n---\n# kept as it stands\nkind: Role\nmetadata: {name: c}\n", got)
	_, err = Select(manifest, []string{"Role", "Service/z"})
	assert.EqualError(t, err, "only: the manifest has no Service/z")
}
