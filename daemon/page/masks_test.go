package page

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
)

// TestADocumentIsMaskedOnce: by what it holds, and few are remembered, none of them with a secret.
func TestADocumentIsMaskedOnce(t *testing.T) {
	var m masks
	text, _ := recordedSite(10)
	want, err := site.Mask(text)
	require.NoError(t, err)
	for range 2 {
		got, err := m.mask(text)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got))
	}
	first, _ := m.mask(text)
	second, _ := m.mask(append([]byte(nil), text...))
	assert.Same(t, &first[0], &second[0], "the same text, wherever it is")

	_, err = m.mask([]byte("{"))
	require.Error(t, err)
	_, again := m.mask([]byte("{"))
	assert.Equal(t, err, again)

	for i := range 3 * maxMasks {
		got, err := m.mask(fmt.Appendf(nil, "name: rack-%d\nnodeDefaults: {bmc: {password: %s}}\n", i, secretOfSite))
		require.NoError(t, err)
		assert.Contains(t, string(got), fmt.Sprintf("rack-%d", i))
	}
	assert.LessOrEqual(t, len(m.made), maxMasks)
	for _, one := range m.made {
		assert.NotContains(t, string(one.text), secretOfSite)
	}
}
