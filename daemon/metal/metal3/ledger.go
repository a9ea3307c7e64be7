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

// ErrNoneOpen is what Edit returns of a host that has no open entry.
var ErrNoneOpen = errors.New("nothing of that kind is being done with it")

// maxEntries is how many entries of one host are remembered.
const maxEntries = 16

// Entry is something that is done with a host because its owner asked, and afterwards the record of it.
type Entry[T any] interface {
	IsOpen() bool // it has not ended; the zero value is not open
	Clone() T     // shares nothing
}

// Ledger is all that owners asked of one kind, on DATA, one file for each host: the last entry is the one that may be
// open. It is read once and outlives the hosts. A file that cannot be read permits nothing and is left where it is.
type Ledger[T Entry[T]] struct {
	Dir string

	mu    sync.Mutex
	known map[string][]T // by host; nil: not read yet
	torn  map[string]error
}

// Last is the last entry of a host; the zero value if there was none.
func (s *Ledger[T]) Last(host string) (last T, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(); err != nil {
		return last, err
	}
	if err := s.checkTorn(host); err != nil {
		return last, err
	}
	return lastOf(s.known[host]), nil
}

func lastOf[T Entry[T]](all []T) (last T) {
	if len(all) > 0 {
		last = all[len(all)-1].Clone()
	}
	return last
}

// Open are all entries that have not ended, by host.
func (s *Ledger[T]) Open() (map[string]T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(); err != nil {
		return nil, err
	}
	open := map[string]T{}
	for host, all := range s.known {
		if e := lastOf(all); e.IsOpen() {
			open[host] = e
		}
	}
	return open, nil
}

// Begin adds an entry of a host, unless the last one has not ended.
func (s *Ledger[T]) Begin(host string, e T) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(); err != nil {
		return err
	}
	if err := s.checkTorn(host); err != nil {
		return err
	}
	all := s.known[host]
	if lastOf(all).IsOpen() {
		return errors.New("that is being done already")
	}
	all = append(append([]T(nil), all...), e)
	return s.save(host, all[max(0, len(all)-maxEntries):])
}

// Edit changes the open entry of a host. What change refuses is not saved.
func (s *Ledger[T]) Edit(host string, change func(*T) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(); err != nil {
		return err
	}
	all := append([]T(nil), s.known[host]...)
	e := lastOf(all)
	if !e.IsOpen() {
		return fmt.Errorf("host %s: %w", host, ErrNoneOpen)
	}
	if err := change(&e); err != nil {
		return err
	}
	all[len(all)-1] = e
	return s.save(host, all)
}

func (s *Ledger[T]) load() error {
	if s.known != nil {
		return nil
	}
	paths, err := filepath.Glob(filepath.Join(s.Dir, "*.json"))
	if err != nil {
		return err
	}

	known, torn := map[string][]T{}, map[string]error{}
	for _, path := range paths {
		host := strings.TrimSuffix(filepath.Base(path), ".json")
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var all []T
		if err == nil {
			err = json.Unmarshal(text, &all)
		}
		if err != nil {
			torn[host] = fmt.Errorf("its record on DATA cannot be read; move it away: %s: %w", path, err)
			continue
		}
		known[host] = all
	}
	s.known, s.torn = known, torn
	return nil
}

// checkTorn is nil if the file of a host could be read, or was moved away since.
func (s *Ledger[T]) checkTorn(host string) error {
	if s.torn[host] == nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(s.Dir, host+".json")); errors.Is(err, fs.ErrNotExist) {
		delete(s.torn, host)
	}
	return s.torn[host]
}

func (s *Ledger[T]) save(host string, all []T) error {
	text, err := json.MarshalIndent(all, "", "\t")
	if err == nil {
		err = errors.Join(os.MkdirAll(s.Dir, 0o700), atomicfile.Write(filepath.Join(s.Dir, host+".json"), text, 0o600))
	}
	if err != nil {
		return fmt.Errorf("save what is done with host %s: %w", host, err)
	}
	known := maps.Clone(s.known)
	known[host] = all
	s.known = known
	return nil
}
