package image

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/image/cache"
)

// pending stands for the digest of a part that will change once it is built.
const pending = "to be built"

// Step says what became, or would become, of one part of the image.
type Step struct {
	Part   string        `json:"part"`   // such as "root appliance"
	Action string        `json:"action"` // "kept" or "build"
	Why    []string      `json:"why,omitempty"`
	Took   time.Duration `json:"took,omitempty"` // nanoseconds
}

// Progress is told how a build goes on.
type Progress interface {
	Log(line string)
	Begin(part string, why []string)
	Advance(part string, at Position)
	End(part string, took time.Duration)
}

// Position is how far a part is.
type Position struct {
	Doing     string   // such as "linking"; may be empty while packages are counted
	Done, All int      // packages; 0 when nothing is counted
	Next      []string // what follows, in this order, as far as it is known
}

// session is one build or plan: it remembers what every part was made from, so that
// the next one can say what changed.
type session struct {
	store    cache.Store
	planOnly bool
	progress Progress

	mu    sync.Mutex
	made  Made
	last  map[string]Inputs // part to inputs of the last build
	now   map[string]Inputs
	steps []Step
}

func (s *session) lastBuildPath(top string) string {
	return filepath.Join(s.store.Dir, "last", cache.Key(top)[:16]+".json")
}

func (s *session) load(top string) {
	s.last, s.now = map[string]Inputs{}, map[string]Inputs{}
	if text, err := os.ReadFile(s.lastBuildPath(top)); err == nil {
		_ = json.Unmarshal(text, &s.last) // only explains; a damaged one explains less
	}
}

func (s *session) save(top string) error {
	path := s.lastBuildPath(top)
	text, err := json.Marshal(s.now)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}

	if err == nil {
		err = atomicfile.Write(path, text, 0o644)
	}

	if err != nil {
		return fmt.Errorf("remember build: %w", err)
	}

	return nil
}

// runPart makes a part that is not kept: it says why, and how long it took.
func (s *session) runPart(title string, in Inputs, do func() error) error {
	why, start := s.changedInputs(title, in), time.Now()
	s.progress.Begin(title, why)
	if err := do(); err != nil {
		return err
	}

	took := time.Since(start)
	s.progress.End(title, took)
	s.recordStep(in, Step{Part: title, Action: "build", Why: why, Took: took})
	return nil
}

// runTimed does one step of a part that is not kept, and says how long it took.
func (s *session) runTimed(title string, do func() error) error {
	start := time.Now()
	if err := do(); err != nil {
		return err
	}

	took := time.Since(start)
	s.progress.End(title, took)
	s.recordStep(nil, Step{Part: title, Action: "build", Took: took})
	return nil
}

// recordStep adds a step, and for the next build what its part was made from unless that is nil.
func (s *session) recordStep(in Inputs, step Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in != nil {
		s.now[step.Part] = in
	}

	s.steps = append(s.steps, step)
}

// changedInputs names the inputs that differ from the last build's.
func (s *session) changedInputs(title string, in Inputs) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, there := s.last[title]
	if !there {
		return []string{"not built before from this directory"}
	}

	names := maps.Clone(in)
	maps.Copy(names, was)
	var why []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		before, had := was[name]
		after, has := in[name]
		switch {
		case !had:
			why = append(why, name+" is new")
		case !has:
			why = append(why, name+" is gone")
		case before != after:
			why = append(why, name+" changed")
		}
	}

	if len(why) == 0 {
		why = []string{"no longer in the cache"}
	}

	return why
}
