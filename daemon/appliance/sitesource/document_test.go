package sitesource

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestASourceMayHaveWhatIsInUse: what versions began to refuse is no mistake of a document that goes on having it, from a
// source as from a person.
func TestASourceMayHaveWhatIsInUse(t *testing.T) {
	node := func(name, mac, image string) string {
		return "- name: " + name + "\n  macs: ['52:54:00:00:00:" + mac + "']\n  os: {image: " + image + "}\n"
	}
	inUse := "nodes:\n" + node("a", "01", "x.iso")
	d, err := newDraft([]byte(inUse+node("b", "02", "y.raw")), []byte(inUse))
	require.NoError(t, err)
	assert.Equal(t, []string{"nodes b: added"}, d.changes)

	_, err = newDraft([]byte(inUse+node("b", "02", "y.iso")), []byte(inUse))
	require.ErrorContains(t, err, `site.yaml:7: nodes[1].os.image: "y.iso" is started from a drive`)
}
