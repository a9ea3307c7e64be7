package sitesource

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/status"
)

// TestADocumentInUseIsFollowedThoughANewOneMayNotHaveWhatItHas: it is read as firstlightd site replace reads it.
func TestADocumentInUseIsFollowedThoughANewOneMayNotHaveWhatItHas(t *testing.T) {
	r := newGitServer(t)
	old := "nodes:\n" + node(1) + "    os: {image: x.iso}\n"
	m := newMachine(t, r.document("rack-a", "first token", old))
	r.write("sites/rack-a/site.yaml", r.document("rack-a", "[redacted]", old+node(2)))
	r.push("another node")
	assert.Contains(t, m.look(), ": current")
	assert.Len(t, m.site().Nodes, 2)

	r.write("sites/rack-a/site.yaml", r.document("rack-a", "[redacted]", old+node(2)+"    os: {image: y.iso}\n"))
	r.push("a new one of those")
	assert.Contains(t, m.look(), `nodes[1].os.image: "y.iso" is started from a drive`)
	assert.Equal(t, status.SourceRefused, m.Status().State)
}
