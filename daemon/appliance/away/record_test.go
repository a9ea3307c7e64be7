package away

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/stick"
)

func TestWhenACopyIsDueAndWhatIsSaid(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	const day = 24 * time.Hour
	for _, c := range []struct {
		name  string
		r     Record
		every time.Duration
		due   bool
		note  string
	}{
		{"none yet", Record{}, day, true, ""},
		{"none yet, and no schedule", Record{}, 0, true, ""},
		{"fresh", Record{Made: ago(time.Hour)}, day, false, ""},
		{"a day old", Record{Made: ago(day)}, day, true, ""},
		{"the store is away", Record{Made: ago(day), Tried: ago(time.Minute), Error: "it is down"}, day, false, ""},
		{"the store is away for long", Record{Made: ago(3 * day), Tried: ago(time.Hour), Error: "it is down"}, day, true,
			"The last away copy is 3 days old; the last try failed: it is down"},
		{"never reached", Record{Tried: ago(time.Minute), Error: "it is down"}, day, false,
			"There is no away copy yet; the last try failed: it is down"},
		{"two hours, every hour", Record{Made: ago(150 * time.Minute)}, time.Hour, true, "The last away copy is 2 h old"},
		{"by hand", Record{Made: ago(29 * day)}, 0, true, ""},
		{"by hand, long ago", Record{Made: ago(31 * day)}, 0, true, "The last away copy is 31 days old; firstlightd backup makes a new one"},
		{"the clock was set back", Record{Made: now.Add(day), Tried: now.Add(day)}, day, true, ""},
	} {
		assert.Equal(t, c.due, c.r.IsDue(now, c.every), c.name)
		assert.Equal(t, c.note, c.r.Note(now, c.every), c.name)
	}
}

func TestTheRecordOutlivesABoot(t *testing.T) {
	p := Place{t.TempDir()}
	require.NoError(t, os.MkdirAll(p.path(stick.DataDir), 0o755))
	assert.Zero(t, p.Record())
	want := Record{Made: header.Made, To: "there"}
	require.NoError(t, p.Save(want))
	assert.Equal(t, want, p.Record())
	require.NoError(t, os.Truncate(filepath.Join(p.Root, recordFile), 5))
	assert.Zero(t, p.Record())

	key := newKey(t).Recipient().String()
	none, err := p.Recipient()
	require.NoError(t, err)
	assert.Empty(t, none)
	require.NoError(t, p.SaveRecipient(key))
	kept, err := p.Recipient()
	require.NoError(t, err)
	assert.Equal(t, key, kept)
	_, err = ParseRecipients([]string{kept})
	require.NoError(t, err)
	_, err = ParseRecipients([]string{"age1x"})
	assert.ErrorContains(t, err, `"age1x" is not the public half of a recovery key (age1…)`)
}
