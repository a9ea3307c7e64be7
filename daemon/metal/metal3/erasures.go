package metal3

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// ErrNotErasing is what Edit returns of a host that has no open erasure.
var ErrNotErasing = errors.New("none of its disks is to be erased")

// maxErasures is how many erasures of one host are remembered.
const maxErasures = 16

// Erasures are on DATA, one file for each host that was ever to be erased: the last erasure is the one that may be open.
// They are read once and outlive the host. A file that cannot be read permits nothing and is left where it is.
type Erasures struct {
	Dir string

	mu    sync.Mutex
	known map[string][]Erasure // by host; nil: not read yet
	torn  map[string]error
}

// Last is the last erasure of a host; the zero value if there was none.
func (s *Erasures) Last(host string) (Erasure, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(); err != nil {
		return Erasure{}, err
	}
	if err := s.torn[host]; err != nil {
		return Erasure{}, err
	}
	return last(s.known[host]), nil
}

func last(all []Erasure) Erasure {
	if len(all) == 0 {
		return Erasure{}
	}
	e := all[len(all)-1]
	e.Disks = append([]ErasedDisk(nil), e.Disks...)
	return e
}

// Open are all erasures that have not ended, by host.
func (s *Erasures) Open() (map[string]Erasure, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(); err != nil {
		return nil, err
	}
	open := map[string]Erasure{}
	for host, all := range s.known {
		if e := last(all); e.IsOpen() {
			open[host] = e
		}
	}
	return open, nil
}

// Begin adds an erasure of a host, unless the last one has not ended.
func (s *Erasures) Begin(host string, e Erasure) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(); err != nil {
		return err
	}
	if err := s.torn[host]; err != nil {
		return err
	}
	all := s.known[host]
	if last(all).IsOpen() {
		return errors.New("it is being erased already")
	}
	all = append(append([]Erasure(nil), all...), e)
	return s.save(host, all[max(0, len(all)-maxErasures):])
}

// Edit changes the open erasure of a host. What change refuses is not saved.
func (s *Erasures) Edit(host string, change func(*Erasure) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(); err != nil {
		return err
	}
	all := append([]Erasure(nil), s.known[host]...)
	e := last(all)
	if !e.IsOpen() {
		return fmt.Errorf("host %s: %w", host, ErrNotErasing)
	}
	if err := change(&e); err != nil {
		return err
	}
	all[len(all)-1] = e
	return s.save(host, all)
}

func (s *Erasures) load() error {
	if s.known != nil {
		return nil
	}
	paths, err := filepath.Glob(filepath.Join(s.Dir, "*.json"))
	if err != nil {
		return err
	}

	known, torn := map[string][]Erasure{}, map[string]error{}
	for _, path := range paths {
		host := strings.TrimSuffix(filepath.Base(path), ".json")
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var all []Erasure
		if err == nil {
			err = json.Unmarshal(text, &all)
		}
		if err != nil {
			torn[host] = fmt.Errorf("its record of what was erased cannot be read; move it away: %s: %w", path, err)
			continue
		}
		known[host] = all
	}
	s.known, s.torn = known, torn
	return nil
}

func (s *Erasures) save(host string, all []Erasure) error {
	text, err := json.MarshalIndent(all, "", "\t")
	if err == nil {
		err = errors.Join(os.MkdirAll(s.Dir, 0o700), atomicfile.Write(filepath.Join(s.Dir, host+".json"), text, 0o600))
	}
	if err != nil {
		return fmt.Errorf("save what is erased of host %s: %w", host, err)
	}
	known := maps.Clone(s.known)
	known[host] = all
	s.known = known
	return nil
}
