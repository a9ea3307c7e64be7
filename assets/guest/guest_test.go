package guest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPlacementsAreReadBack(t *testing.T) {
	p := Placement{Folder: Folder, Registry: "registry.example:5000/lab"}
	read, err := Parse(p.Encode())
	require.NoError(t, err)
	assert.Equal(t, p, read)
	for _, text := range []string{"", `{}`, `{"folder":"data"}`, `{"folder":"/"}`, `{"folder":"/a","registry":"https://x"}`, `{"folder":"/a","registry":"x/"}`} {
		_, err := Parse(text)
		assert.Error(t, err, text)
	}
}

func TestOnlyOurImagesMove(t *testing.T) {
	assert.Equal(t, "firstlight.internal/a:1", Placement{}.Image("firstlight.internal/a:1"))
	p := Placement{Registry: "registry.example"}
	assert.Equal(t, "registry.example/a:1", p.Image("firstlight.internal/a:1"))
	assert.Equal(t, "firstlight.internal.example/a:1", p.Image("firstlight.internal.example/a:1"))
}
