package sitedocument

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// How much a History holds. Its newest document is in it however long it is.
const (
	maxEntries = 20
	maxBytes   = 4 << 20
)

// Entry is a document that was applied.
type Entry struct {
	Number int       // one more than that of the one before
	Time   time.Time // when it was applied, as the appliance's clock was then
	By     string    // USER@HOST; "": it was found on the stick
	Text   []byte
}

// History is the documents that were applied lately, a file each. Several processes may add to it.
type History struct {
	Dir string // readable by root alone; made when it is needed

	mu   sync.Mutex
	last []Entry

	followed []byte // by Follow
}

// Add writes down that a document was applied. One that is the newest already is not added again; it gets who applied
// it if nobody was known for that.
func (h *History) Add(text []byte, by string, at time.Time) error {
	if err := os.MkdirAll(h.Dir, 0o700); err != nil {
		return fmt.Errorf("keep site: %w", err)
	}
	unlock, err := atomicfile.LockDir(h.Dir)
	if err != nil {
		return fmt.Errorf("keep site: %w", err)
	}
	defer unlock()

	all, err := readEntries(h.Dir)
	if err != nil {
		return fmt.Errorf("keep site: %w", err)
	}

	e := Entry{Number: 1, Time: at.UTC().Truncate(time.Second), By: by, Text: text}
	if n := len(all); n > 0 {
		newest := all[n-1]
		e.Number = newest.Number + 1
		if bytes.Equal(newest.Text, text) {
			if by == "" || newest.By != "" {
				h.set(all)
				return nil
			}
			e.Number, e.Time, all = newest.Number, newest.Time, all[:n-1]
		}
	}

	if err := atomicfile.Write(filepath.Join(h.Dir, e.name()), e.format(), 0o600); err != nil {
		return fmt.Errorf("keep site: %w", err)
	}
	all = append(all, e)
	kept := bound(all)
	for _, old := range all[:len(all)-len(kept)] {
		if err := os.Remove(filepath.Join(h.Dir, old.name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove old site: %w", err)
		}
	}

	h.set(kept)
	return nil
}

// Follow adds the document that is in effect, if that is another one than at the last call: the one before it is still in
// effect for a while after a new one was added, and was not applied once more. One goroutine may call it.
func (h *History) Follow(text []byte, at time.Time) error {
	if h.followed != nil && bytes.Equal(h.followed, text) {
		return nil
	}
	if err := h.Add(text, "", at); err != nil {
		return err
	}
	h.followed = text
	return nil
}

// Load reads what is there, also of other processes.
func (h *History) Load() error {
	all, err := readEntries(h.Dir)
	if err != nil {
		return fmt.Errorf("read history of the site: %w", err)
	}
	h.set(bound(all))
	return nil
}

// List returns the entries as they were loaded or added last, the oldest first. Their texts are not to be changed.
func (h *History) List() []Entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.last)
}

func (h *History) set(all []Entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = all
}

// bound is the newest entries that there is room for.
func bound(all []Entry) []Entry {
	room := maxBytes
	for i := len(all) - 1; i >= 0; i-- {
		room -= len(all[i].Text)
		if isNewest := i == len(all)-1; !isNewest && room < 0 || len(all)-i > maxEntries {
			return all[i+1:]
		}
	}
	return all
}

// Lines before the text of an entry.
const (
	timeLine = "# applied: "
	byLine   = "# by: "
)

const fileSuffix = ".yaml"

func (e Entry) name() string { return fmt.Sprintf("%08d%s", e.Number, fileSuffix) }

// format is the file of an entry: the document itself after two comments.
func (e Entry) format() []byte {
	head := timeLine + e.Time.Format(time.RFC3339) + "\n" + byLine + e.By + "\n"
	return append([]byte(head), e.Text...)
}

// parseEntry reads a file that format made; false if it is another one.
func parseEntry(name string, content []byte) (Entry, bool) {
	number, err := strconv.Atoi(strings.TrimSuffix(name, fileSuffix))
	first, rest, _ := bytes.Cut(content, []byte("\n"))
	second, text, isWhole := bytes.Cut(rest, []byte("\n"))
	at, hasTime := strings.CutPrefix(string(first), timeLine)
	by, hasBy := strings.CutPrefix(string(second), byLine)
	applied, wrong := time.Parse(time.RFC3339, at)
	if err != nil || wrong != nil || !hasTime || !hasBy || !isWhole {
		return Entry{}, false
	}
	return Entry{Number: number, Time: applied, By: by, Text: text}, true
}

// readEntries are the entries of a folder, the oldest first; none if it is not there. Files of another form are left out.
func readEntries(dir string) ([]Entry, error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	var all []Entry
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), fileSuffix) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // another process has removed it
		}
		if err != nil {
			return nil, err
		}
		if e, ok := parseEntry(f.Name(), content); ok {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b Entry) int { return a.Number - b.Number })
	return all, nil
}
