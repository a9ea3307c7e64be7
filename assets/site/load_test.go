package site

import (
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
