package page

import (
	"fmt"
	"strings"
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

// TestLongDocumentsAreComparedByTheirParts: line by line it would take minutes.
func TestLongDocumentsAreComparedByTheirParts(t *testing.T) {
	document := func(nodes int, last string) []byte {
		text := "nodes:\n"
		for i := range nodes {
			text += fmt.Sprintf("- name: node-%d\n  macs: [\"52:54:00:%02x:%02x:%02x\"]\n  bmc:\n    username: admin\n    address: redfish://10.%d.%d.%d/redfish/v1/Systems/1\n    password: %s\n",
				i, i>>16, i>>8&255, i&255, i>>16, i>>8&255, i&255, secretOfSite)
		}
		return []byte(strings.Replace(text, "password: "+secretOfSite+"\n- name: node-7\n", "password: "+last+"\n- name: node-7\n", 1))
	}
	var m masks
	d, err := m.diff(document(3000, "other-secret"), document(3001, secretOfSite))
	require.NoError(t, err)
	assert.True(t, d.IsLong)
	assert.Empty(t, d.Lines)
	assert.Equal(t, []differenceView{
		{"node node-6", site.Changed, "bmc.password"},
		{"node node-3000", site.Added, "It is checked, inspected, installed and verified."},
	}, d.Parts)

	d, err = m.diff(document(30, secretOfSite), document(31, secretOfSite))
	require.NoError(t, err)
	assert.False(t, d.IsLong)
	assert.NotEmpty(t, d.Lines)
}
