package virtualrack

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/accelerator"
)

// TestARunKeepsItsAccelerator: whatever is switched on later runs as was decided when the rack began.
func TestARunKeepsItsAccelerator(t *testing.T) {
	c := newRack(t)
	m, err := readRackDoc(c.Dir)
	require.NoError(t, err)
	m.Run.Accel = accelerator.Choice{Kind: accelerator.KVM, Why: "as asked"}
	require.NoError(t, writeJSON(filepath.Join(c.Dir, rackFile), m))
	c.mustStart(t)
	require.NoError(t, c.Press(t.Context(), "node-1", "on"))
	s, err := c.Status(t.Context())
	require.NoError(t, err)
	for _, machine := range s.Machines[:2] {
		assert.Contains(t, machine.Command, " -accel kvm -cpu host ", machine.Name)
	}
	run, err := c.Run()
	require.NoError(t, err)
	assert.Equal(t, m.Run, run)
}

// TestThrottle throttles machines of a rack, one of which is off, and frees one.
func TestThrottle(t *testing.T) {
	c := newRack(t)
	c.mustStart(t)
	shares := func() (all []float64) {
		s, err := c.Status(t.Context())
		require.NoError(t, err)
		for _, m := range s.Machines {
			all = append(all, m.Share)
		}
		return all
	}
	require.NoError(t, c.Throttle(t.Context(), All, 0.5))
	require.NoError(t, c.Press(t.Context(), "node-1", "on"))
	assert.Equal(t, []float64{0.5, 0.5, 0.5}, shares())
	require.NoError(t, c.Throttle(t.Context(), Appliance, 0))
	assert.Equal(t, []float64{0, 0.5, 0.5}, shares())
	assert.EqualError(t, c.Throttle(t.Context(), Appliance, -1), "-1 processors; want 0.01 to 1024, or 0 for as many as it wants")
	assert.ErrorContains(t, c.Throttle(t.Context(), "node-9", 1), `machine "node-9" is not in the rack`)
	assert.Equal(t, []float64{0, 0.5, 0.5}, shares())
}
