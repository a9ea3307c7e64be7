package away

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/stick"
)

// State is how far a restore is.
type State string

const (
	None    State = ""
	Waiting State = "waiting" // unpacked; the machine must start again
	Due     State = "due"     // unpacked, and nothing runs yet that has the old state open
)

// State says whether an unpacked copy waits for its place.
func (p Place) State() State {
	switch {
	case !exists(p.path(unpackedDir)):
		return None
	case exists(p.path(waitFile)):
		return Waiting
	}
	return Due
}

// Resume puts an unpacked copy in place, if one is due. Nothing else may use the state meanwhile. Cut anywhere, it does
// all of it again at the next start.
func (p Place) Resume() (restored bool, err error) {
	if p.State() != Due {
		return false, nil
	}
	for _, step := range p.steps() {
		if err := step.do(); err != nil {
			return false, fmt.Errorf("restore: %s: %w", step.name, err)
		}
	}
	return true, nil
}

// step is one deed of Resume.
type step struct {
	name string
	do   func() error
}

// steps are in order: the unpacked copy is given up last, when all of it is in place and on the medium.
func (p Place) steps() []step {
	var all []step
	for _, dir := range clearedFolders() {
		all = append(all, step{"clear " + dir, func() error { return p.clear(dir) }})
	}
	for _, part := range Parts() {
		all = append(all,
			step{"clear " + part.Path, func() error { return p.clear(part.Path) }},
			step{"place " + part.Path, func() error { return p.place(part) }},
		)
	}

	return append(all,
		step{"sync", p.sync},
		step{"remember", p.remember},
		step{"finish", func() error { return os.Rename(p.path(unpackedDir), p.path(partialDir)) }},
		step{"tidy", p.Tidy},
	)
}

// Tidy removes what a cut left of Unpack or Resume.
func (p Place) Tidy() error { return os.RemoveAll(p.path(partialDir)) }

// clear removes a file, or what is in a folder: the folder itself may be a mount.
func (p Place) clear(name string) error {
	top := p.path(name)
	info, err := os.Lstat(top)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return os.Remove(top)
	}

	entries, err := os.ReadDir(top)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(top, e.Name())))
	}

	return err
}

// place copies the files of a part to their paths. They are copied, not renamed: DATA is mounted in several places.
func (p Place) place(part Part) error {
	tree := filepath.Join(p.path(unpackedDir), treeName)
	return filepath.WalkDir(filepath.Join(tree, part.Path), func(from string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the copy has none
		}
		if err != nil {
			return err
		}

		to := p.path(strings.TrimPrefix(from, tree))
		if err := os.MkdirAll(filepath.Dir(to), part.Mode); err != nil || d.IsDir() {
			return err
		}

		info, err := d.Info()
		if err != nil {
			return err
		}

		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}

		return writeFile(to, data, info.Mode().Perm())
	})
}

// sync brings all that was placed to the medium.
func (p Place) sync() error {
	var err error
	for _, name := range []string{stick.DataDir, "/opt/kud", "/etc/kubernetes"} {
		if exists(p.path(name)) {
			err = errors.Join(err, syncAt(p.path(name)))
		}
	}
	return err
}

func (p Place) remember() error {
	header, err := os.ReadFile(filepath.Join(p.path(unpackedDir), headerName))
	if err != nil {
		return err
	}
	return atomicfile.Write(p.path(RestoredFile), header, 0o600)
}

// LastRestore is the header of what was put in place last; false if this appliance was never restored.
func (p Place) LastRestore() (h Header, ok bool) {
	text, err := os.ReadFile(p.path(RestoredFile))
	return h, err == nil && json.Unmarshal(text, &h) == nil
}
