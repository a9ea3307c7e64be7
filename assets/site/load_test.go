package site

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestASiteInUseIsAccepted: what versions began to refuse is noted, and nothing else of a wrong file is.
func TestASiteInUseIsAccepted(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "wrong", "22-os-images.yaml"))
	require.NoError(t, err)
	_, all := Load("site.yaml", text)
	s, notes, problems := Accept("site.yaml", text)
	assert.Nil(t, s)
	var lines []int
	for _, p := range problems {
		lines = append(lines, p.Line)
	}
	assert.Equal(t, []int{3, 25, 31}, lines, "no version had userData and took these")
	assert.Equal(t, all, append(problems, notes...).Sort())

	s, notes, problems = Accept("site.yaml", []byte(`
networks: {provisioning: {dhcp: {range: 172.22.0.10-172.22.0.10}}}
nodes:
- {name: a, macs: ["52:54:00:00:00:01"], os: {image: old-coreos.raw}}
- {name: b, macs: ["52:54:00:00:00:02"], os: {image: talos.raw}}
clusters: [{name: c, controlPlane: [{node: a}]}]
`))
	require.Empty(t, problems)
	require.Len(t, notes, 3)
	assert.Equal(t, []int{2, 4, 5}, []int{notes[0].Line, notes[1].Line, notes[2].Line})
	assert.Contains(t, notes[1].Message, "say which with userData: ignition or userData: cloud-init")
	assert.Equal(t, UserDataCloudInit, s.WithDefaults().Nodes[0].OS.UserData, "its cluster was made with that")
	assert.Equal(t, UserDataCloudInit, s.WithDefaults().Nodes[1].OS.UserData)
}

// TestANewSiteMayHaveWhatTheOneInUseHas, in other words too: fewer nodes are not refused because they are still too many.
func TestANewSiteMayHaveWhatTheOneInUseHas(t *testing.T) {
	document := func(nodes ...string) []byte {
		text := "networks: {provisioning: {dhcp: {range: 172.22.0.10-172.22.0.10}}}\nnodes:\n"
		for i, image := range nodes {
			text += fmt.Sprintf("- {name: n%s, macs: [\"52:54:00:00:00:%02d\"], os: {image: %s}}\n", image[:1], i, image)
		}
		return []byte(text)
	}
	inUse := document("a.iso", "b.raw", "c.raw")
	for name, c := range map[string]struct {
		nodes []string
		wrong int
	}{
		"as it is":                {[]string{"a.iso", "b.raw", "c.raw"}, 0},
		"in another place":        {[]string{"b.raw", "c.raw", "a.iso"}, 0},
		"a node less":             {[]string{"a.iso", "c.raw"}, 0},
		"another such image":      {[]string{"a.iso", "b.iso", "c.raw"}, 1},
		"of another reason":       {[]string{"a.raw.gz", "b.raw"}, 1},
		"more nodes than before":  {[]string{"a.iso", "b.raw", "c.raw", "d.raw"}, 1},
		"nothing of it any more":  {[]string{"b.raw"}, 0},
		"what is wrong otherwise": {[]string{"a.iso", "b.raw", "b.raw"}, 1},
	} {
		s, problems := LoadAfter("site.yaml", document(c.nodes...), inUse)
		assert.Len(t, problems, c.wrong, name)
		assert.Equal(t, c.wrong == 0, s != nil, name)
	}
}
