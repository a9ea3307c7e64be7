package discovery

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMadeUpBMCsKeepNoMachineFromBeingFound: a machine may claim a thousand addresses at which nothing is. An hour later
// others are asked again, and what a BMC refused is remembered whatever was claimed.
func TestMadeUpBMCsKeepNoMachineFromBeingFound(t *testing.T) {
	began := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	s := &saved{Tries: map[string]Tries{}}
	for i := range maxBMCs {
		require.True(t, s.begin(fmt.Sprintf("10.30.%d.%d", i>>8, i&255), began))
	}
	locked := s.Tries["10.30.0.1"]
	locked.Silent, locked.Refused = false, []string{"key"}
	s.Tries["10.30.0.1"] = locked

	assert.False(t, s.begin("10.30.9.1", began.Add(50*time.Minute)), "what was just asked is forgotten")
	for i := range maxBMCs {
		assert.Equal(t, i < maxBMCs-1, s.begin(fmt.Sprintf("10.30.9.%d", i), began.Add(61*time.Minute)))
		assert.LessOrEqual(t, len(s.Tries), maxBMCs)
	}
	assert.Equal(t, locked, s.Tries["10.30.0.1"])
}
