package packages

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// ofOwners leaves out what others brought under a name that somebody has. The one has it who has it in the
// index that is there; else whose file is the oldest. The clock may have been set in between, so the index
// comes first.
func (r *Repository) ofOwners(p Pool, stanzas []string, leave func(file, why string)) ([]string, error) {
	if p.Owner == nil {
		return stanzas, nil
	}

	indexed, err := r.indexedOwners(p)
	if err != nil {
		return nil, err
	}

	type claim struct {
		owner   string
		indexed bool
		at      time.Time
	}
	has := map[string]claim{}
	for _, s := range stanzas {
		name, file := Field(s, "Package"), path.Base(Field(s, "Filename"))
		c := claim{owner: p.Owner(file)}
		c.indexed = indexed[name] == c.owner
		if info, err := os.Stat(filepath.Join(p.Dir, file)); err == nil {
			c.at = info.ModTime()
		}

		first, taken := has[name]
		if !taken || c.indexed && !first.indexed || c.indexed == first.indexed && c.at.Before(first.at) {
			has[name] = c
		}
	}

	var kept []string
	for _, s := range stanzas {
		name, file := Field(s, "Package"), Field(s, "Filename")
		if owner := has[name].owner; owner != p.Owner(path.Base(file)) {
			leave(file, owner+" brought "+name+" first, and has the name")
			continue
		}
		kept = append(kept, s)
	}

	return kept, nil
}

// indexedOwners are who has which package in the index that was written last.
func (r *Repository) indexedOwners(p Pool) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(r.Dir, "dists", Suite, indexPath))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read index of packages: %w", err)
	}

	owners := map[string]string{}
	for s := range strings.SplitSeq(string(text), "\n\n") {
		if file, ours := strings.CutPrefix(Field(s, "Filename"), p.Path+"/"); ours {
			owners[Field(s, "Package")] = p.Owner(file)
		}
	}

	return owners, nil
}
