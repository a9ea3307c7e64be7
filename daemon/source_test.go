package daemon

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
)

// TestANoteSaysSinceWhenASourceIsSilent: it needs nobody on the appliance; a refused revision is in the headline instead.
func TestANoteSaysSinceWhenASourceIsSilent(t *testing.T) {
	assert.Empty(t, sourceNotes(nil))
	s := &status.Source{
		From: "https://git.example/racks.git@main", State: status.SourceLost, Error: "no route to host",
		Behind: time.Date(2026, 11, 29, 17, 2, 0, 0, time.UTC),
	}
	notes := sourceNotes(s)
	require.Len(t, notes, 1)
	assert.Contains(t, notes[0], "https://git.example/racks.git@main was last read before 2026-11-29 17:02:00 UTC")
	assert.Contains(t, notes[0], "no route to host")
	assert.True(t, status.Document{Source: s}.Attention().None())

	s.State = status.SourceRefused
	assert.Empty(t, sourceNotes(s))
	a := status.Document{Source: s}.Attention()
	assert.False(t, a.None())
	assert.Equal(t, "See what is wrong with the newest revision of the source: firstlightd why.", attentionText(a))
}
