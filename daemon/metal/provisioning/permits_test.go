package provisioning

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/metal/metal3"
)

func TestPermitsAreForOneInstallation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agents", "permits.json")
	p := &permits{path: path}
	require.NoError(t, p.edit("node1", "uid", "a", func(m *metal3.Permit) { m.Wipe = true }))
	require.NoError(t, p.edit("node1", "uid", "a", func(m *metal3.Permit) { m.Begun = &metal3.WriteDisk{Name: "/dev/sda"} }))
	require.NoError(t, p.edit("node2", "uid", "a", func(m *metal3.Permit) { m.Wipe = true }))
	again := &permits{path: path}
	got, err := again.get("node1")
	require.NoError(t, err)
	assert.Equal(t, metal3.Permit{Host: "uid", Image: "a", Wipe: true, Begun: &metal3.WriteDisk{Name: "/dev/sda"}}, got)

	require.NoError(t, again.edit("node1", "uid", "b", func(m *metal3.Permit) { m.Begun = &metal3.WriteDisk{Name: "/dev/sda"} }))
	got, err = again.get("node1")
	require.NoError(t, err)
	assert.False(t, got.Wipe, "what was given up for one image is not for another")

	require.NoError(t, again.forget(func(host string) bool { return host == "node1" }))
	got, err = again.get("node1")
	require.NoError(t, err)
	assert.Zero(t, got)
	got, err = again.get("node2")
	require.NoError(t, err)
	assert.True(t, got.Wipe)

	require.NoError(t, os.Truncate(path, 10))
	_, err = again.get("node2")
	assert.Error(t, err, "a torn file permits nothing")
	require.NoError(t, again.edit("node2", "uid", "a", func(m *metal3.Permit) { m.Wipe = true }))
}
