package bringup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
)

func journal(t *testing.T, path, boot string) *Journal {
	j := &Journal{Path: path, Log: quiet}
	j.Begin(boot, "1.2.3", time.Now())
	return j
}

func snapshot(state status.State, attempts int) Snapshot {
	return Snapshot{State: state, Stages: []status.Stage{{Name: "links-up", State: state, Attempts: attempts}}}
}

// write notes a snapshot and flushes it by ending the journal's Run.
func write(t *testing.T, j *Journal, s Snapshot) {
	j.Update(s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, j.Run(ctx))
}

func TestJournalKeepsTheRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "firstlight", "journal.json")
	for i := range journalRuns + 3 {
		j := journal(t, path, "boot")
		write(t, j, snapshot(status.StateWorking, 1))
		write(t, j, snapshot(status.StateReady, i))
	}
	h, err := ReadHistory(path)
	require.NoError(t, err)
	require.Len(t, h.Runs, journalRuns)
	last := h.Runs[journalRuns-1]
	assert.Equal(t, "1.2.3", last.Version)
	assert.Equal(t, journalRuns+2, last.Stages[0].Attempts)
	assert.Len(t, last.Events, 2)
	assert.False(t, last.Ready.IsZero())
	assert.Equal(t, 3, h.Runs[0].Stages[0].Attempts, "the oldest runs did not go first")
}

func TestJournalNotReadyStaysInMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.json")
	mounted := false
	j := journal(t, path, "boot")
	j.Ready = func() bool { return mounted }
	write(t, j, snapshot(status.StateWorking, 0))
	assert.NoFileExists(t, path)
	mounted = true
	write(t, j, snapshot(status.StateReady, 1))
	h, err := ReadHistory(path)
	require.NoError(t, err)
	assert.Len(t, h.Runs[0].Events, 2, "what was noted before DATA came is lost")
}

func TestTornJournalIsSetAside(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "journal.json")
	write(t, journal(t, path, "first"), snapshot(status.StateReady, 1))
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	texts := map[string][]byte{"rubbish": []byte("\x00\xff rubbish"), "another type": []byte(`["runs"]`), "too large": make([]byte, journalLimit+1)}
	for n := 0; n < len(whole)-2; n += 7 {
		texts["torn"] = whole[:n]
		for name, text := range texts {
			require.NoError(t, os.WriteFile(path, text, 0o644))
			_, err := ReadHistory(path)
			var rubbish *CorruptJournalError
			require.True(t, errors.As(err, &rubbish), "%s, %d bytes: %v", name, n, err)
			if name == "too large" && n > 0 {
				continue
			}
			write(t, journal(t, path, "second"), snapshot(status.StateReady, 1))
			h, err := ReadHistory(path)
			require.NoError(t, err)
			require.Len(t, h.Runs, 1)
			assert.Equal(t, "second", h.Runs[0].BootID)
			aside, err := os.ReadFile(path + ".unreadable")
			require.NoError(t, err)
			assert.Equal(t, text, aside)
		}
	}
}

// A cut while the new file is written leaves it beside the whole old one.
func TestJournalCutDuringWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.json")
	write(t, journal(t, path, "first"), snapshot(status.StateReady, 1))
	left := filepath.Join(filepath.Dir(path), ".journal.json.new")
	require.NoError(t, os.WriteFile(left, []byte(`{"runs":[{"boo`), 0o644))
	h, err := ReadHistory(path)
	require.NoError(t, err)
	require.Len(t, h.Runs, 1)
	write(t, journal(t, path, "second"), snapshot(status.StateReady, 1))
	h, err = ReadHistory(path)
	require.NoError(t, err)
	assert.Len(t, h.Runs, 2)
	assert.NoFileExists(t, left)
}

func TestJournalOnABrokenMediumDoesNotStopAnything(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o644))
	j := journal(t, filepath.Join(dir, "file", "journal.json"), "boot") // its folder cannot be made
	write(t, j, snapshot(status.StateReady, 1))
	j.Path = filepath.Join(dir, "journal.json")
	write(t, j, snapshot(status.StateReady, 1))
	assert.FileExists(t, j.Path, "what could not be written was forgotten")
}

func TestJournalBoundsEvents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.json")
	j := journal(t, path, "boot")
	for i := range 4 * journalEvents {
		j.Update(snapshot(status.StateWorking, i))
	}
	write(t, j, snapshot(status.StateReady, 0))
	h, err := ReadHistory(path)
	require.NoError(t, err)
	assert.Len(t, h.Runs[0].Events, journalEvents)
	assert.Equal(t, 3*journalEvents+1, h.Runs[0].Dropped)
}

func FuzzReadHistory(f *testing.F) {
	f.Add([]byte(`{"runs":[{"bootID":"x","started":"2026-01-01T00:00:00Z","stages":[],"events":[]}]}`))
	f.Add([]byte(`{"runs":[{`))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "journal.json")
		require.NoError(t, os.WriteFile(path, data, 0o644))
		write(t, journal(t, path, "now"), snapshot(status.StateReady, 1))
		h, err := ReadHistory(path)
		require.NoError(t, err)
		assert.Equal(t, "now", h.Runs[len(h.Runs)-1].BootID)
	})
}
