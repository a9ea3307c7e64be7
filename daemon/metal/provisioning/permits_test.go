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
	require.NoError(t, p.edit("node1", "uid", func(m *metal3.Permit) { m.Wipe = "a" }))
	require.NoError(t, p.edit("node1", "uid", func(m *metal3.Permit) { m.Begun = &metal3.WriteDisk{Name: "/dev/sda"} }))
	require.NoError(t, p.edit("node2", "uid", func(m *metal3.Permit) { m.Wipe = "a" }))
	again := &permits{path: path}
	got, err := again.get("node1")
	require.NoError(t, err)
	assert.Equal(t, metal3.Permit{Host: "uid", Wipe: "a", Begun: &metal3.WriteDisk{Name: "/dev/sda"}}, got)

	require.NoError(t, again.edit("node1", "another", func(m *metal3.Permit) { m.Wipe = "b" }))
	got, err = again.get("node1")
	require.NoError(t, err)
	assert.Equal(t, metal3.Permit{Host: "another", Wipe: "b"}, got, "what was permitted to an earlier object of that name")

	require.NoError(t, again.forget(func(host string) bool { return host == "node1" }))
	got, err = again.get("node1")
	require.NoError(t, err)
	assert.Zero(t, got)
	got, err = again.get("node2")
	require.NoError(t, err)
	assert.Equal(t, "a", got.Wipe)

	require.NoError(t, os.Truncate(path, 10))
	_, err = again.get("node2")
	assert.Error(t, err, "a torn file permits nothing")
	require.NoError(t, again.edit("node2", "uid", func(m *metal3.Permit) { m.Wipe = "a" }))
}
