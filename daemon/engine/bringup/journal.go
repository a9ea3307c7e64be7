package bringup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/status"
)

const (
	journalRuns   = 16      // kept, the oldest goes first
	journalEvents = 256     // kept per run
	journalLimit  = 4 << 20 // bytes; anything larger was not written by us
)

// Journal is the history of the plan: what each run of the daemon found true, what it
// did, and when. It reports and never decides: a stage that consulted it would believe a
// note more than the world.
type Journal struct {
	Path string // on DATA
	Log  *slog.Logger

	// Ready tells whether Path may be written yet: before DATA is mounted the same path
	// lies in memory. Nil: always.
	Ready func() bool

	mu    sync.Mutex
	run   Run
	last  map[string]status.Stage
	kick  chan struct{}
	dirty bool
	once  sync.Once
}

// History is the journal's file.
type History struct {
	Runs []Run `json:"runs"` // oldest first
}

// Run is one life of the daemon.
type Run struct {
	BootID  string         `json:"bootID"`
	Version string         `json:"version"`
	Started time.Time      `json:"started"`
	Ready   time.Time      `json:"ready,omitzero"` // the whole was ready for the first time
	Seconds float64        `json:"seconds,omitempty"`
	Stages  []status.Stage `json:"stages"`
	Events  []Event        `json:"events"`
	Dropped int            `json:"dropped,omitempty"` // older events that gave way
}

// Event is a change of one stage.
type Event struct {
	Time  time.Time    `json:"time"`
	Stage string       `json:"stage"`
	State status.State `json:"state"`
	Text  string       `json:"text,omitempty"`
}

// Begin opens a run. It must be called once, before Note.
func (j *Journal) Begin(bootID, version string, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.run = Run{
		BootID:  bootID,
		Version: version,
		Started: now,
		Stages:  []status.Stage{},
		Events:  []Event{},
	}
	j.last = map[string]status.Stage{}
}

// Update takes in how the plan stands. It does not wait for the medium.
func (j *Journal) Update(s Snapshot) {
	j.mu.Lock()
	for _, st := range s.Stages {
		before := j.last[st.Name]
		j.last[st.Name] = st
		if st.State == before.State && st.Attempts == before.Attempts && st.Error == before.Error {
			continue // what a stage is doing passes by too often to be history
		}

		text := st.Error
		if text == "" {
			text = st.Waiting
		}

		if st.State != status.StateWaiting {
			j.run.Events = append(j.run.Events, Event{Time: time.Now(), Stage: st.Name, State: st.State, Text: text})
		}

		j.dirty = true
	}

	if over := len(j.run.Events) - journalEvents; over > 0 {
		j.run.Events = append([]Event{}, j.run.Events[over:]...)
		j.run.Dropped += over
	}

	if s.State == status.StateReady && j.run.Ready.IsZero() {
		j.run.Ready, j.dirty = time.Now(), true
		j.run.Seconds = j.run.Ready.Sub(j.run.Started).Seconds()
	}

	j.run.Stages = s.Stages
	j.mu.Unlock()
	select {
	case j.kickC() <- struct{}{}:
	default:
	}
}

// Run writes what was noted until ctx ends, and once more then. A medium that cannot be
// written is logged, and tried again with the next change.
func (j *Journal) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			j.flush()
			return nil
		case <-j.kickC():
			j.flush()
		}
	}
}

func (j *Journal) kickC() chan struct{} {
	j.once.Do(func() { j.kick = make(chan struct{}, 1) })
	return j.kick
}

func (j *Journal) flush() {
	if j.Ready != nil && !j.Ready() {
		return
	}

	j.mu.Lock()
	dirty, run := j.dirty, j.run
	run.Events = append([]Event{}, run.Events...)
	j.dirty = false
	j.mu.Unlock()
	if !dirty {
		return
	}

	if err := j.save(run); err != nil {
		j.Log.Warn("journal not written", "path", j.Path, "error", err)
		j.mu.Lock()
		j.dirty = true
		j.mu.Unlock()
	}
}

// save puts run into the file, in the place of what it wrote of the same run before.
func (j *Journal) save(run Run) error {
	h, err := ReadHistory(j.Path)
	var rubbish *CorruptJournalError
	if errors.As(err, &rubbish) {
		aside := j.Path + ".unreadable"
		if err := os.Rename(j.Path, aside); err != nil {
			return fmt.Errorf("set aside %s: %w", j.Path, err)
		}

		j.Log.Warn("journal set aside", "path", j.Path, "aside", aside, "error", rubbish)
		h = History{}
	} else if err != nil {
		return err
	}

	if n := len(h.Runs); n > 0 && h.Runs[n-1].BootID == run.BootID && h.Runs[n-1].Started.Equal(run.Started) {
		h.Runs = h.Runs[:n-1]
	}

	h.Runs = append(h.Runs, run)
	if over := len(h.Runs) - journalRuns; over > 0 {
		h.Runs = h.Runs[over:]
	}

	data, err := json.MarshalIndent(h, "", " ")
	if err != nil {
		return fmt.Errorf("encode journal: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(j.Path), 0o755); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}

	return atomicfile.Write(j.Path, append(data, '\n'), 0o644)
}

// CorruptJournalError says that a journal is there and is none.
type CorruptJournalError struct {
	Path string
	Err  error
}

func (e *CorruptJournalError) Error() string {
	return fmt.Sprintf("read journal %s: %v", e.Path, e.Err)
}
func (e *CorruptJournalError) Unwrap() error { return e.Err }

// ReadHistory reads a journal; one that does not exist is empty. A torn or foreign file
// is a CorruptJournalError.
func ReadHistory(path string) (History, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return History{}, nil
	} else if err != nil {
		return History{}, fmt.Errorf("open journal %s: %w", path, err)
	}

	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, journalLimit+1))
	if err != nil {
		return History{}, &CorruptJournalError{path, err}
	}
	if len(data) > journalLimit {
		return History{}, &CorruptJournalError{path, fmt.Errorf("more than %d bytes", journalLimit)}
	}

	var h History
	if err := json.Unmarshal(data, &h); err != nil {
		return History{}, &CorruptJournalError{path, err}
	}

	return h, nil
}
