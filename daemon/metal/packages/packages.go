// Package packages is the Debian repository that the appliance gives its nodes: a suite with the packages of
// the stick, and one for each owner with those that the owner uploaded, signed by a key of this appliance. A node
// is given the stick's and that of its cluster's owner, so that nobody's upload gets onto the nodes of others. The
// files are written here and served by whoever serves files on the provisioning network:
//
//	dists/SUITE/InRelease                        the index of indexes, signed (clear text, OpenPGP)
//	dists/SUITE/main/binary-amd64/Packages       every package; also below by-hash/SHA256/
//	POOL/…                                       the packages, where each Pool says
//
// A client reads InRelease first, then the index by its digest: an index that is replaced in between
// does no harm. Formats: Debian wiki, DebianRepository/Format; deb-control(5).
package packages

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// Suite is the stick's. An owner's has the owner's name.
const Suite = "firstlight"

const indexPath = "main/binary-amd64/Packages"

// Pool is a directory with packages.
type Pool struct {
	Dir   string // of .deb files; may be absent
	Path  string // where it is served, below the repository's address, without slashes at its ends
	Index string // a file with the pool's stanzas, made when the packages were put there; "": they are read

	// Owner says by a file's name who uploaded it, and thus in whose suite it is. nil: the stick's.
	Owner func(file string) string
}

// Repository is what is written.
type Repository struct {
	Dir   string // gets dists/
	Pools []Pool
	Key   *Key
	Now   func() time.Time

	// Owners get a suite although they have uploaded nothing: apt fails if one that it is told of is missing.
	Owners []string

	// LeftOut is told of files that are in a pool and not in the index; may be nil.
	LeftOut func(file, why string)
}

// Write brings the suites up to date with the pools. It reports whether anything changed.
func (r *Repository) Write(ctx context.Context) (changed bool, err error) {
	indexes, err := r.indexes(ctx)
	if err != nil {
		return false, err
	}

	for _, suite := range slices.Sorted(maps.Keys(indexes)) {
		new, err := r.writeSuite(suite, indexes[suite])
		if err != nil {
			return false, err
		}
		changed = changed || new
	}

	return changed, nil
}

func (r *Repository) writeSuite(suite string, index []byte) (changed bool, err error) {
	dir := filepath.Join(r.Dir, "dists", suite)
	old, err := os.ReadFile(filepath.Join(dir, "InRelease"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("read index of packages: %w", err)
	}

	before, valid := r.Key.open(old)
	if valid && releaseCovers(before, index) && r.Key.hasSigned(old) {
		return false, nil
	}

	date := r.Now().UTC().Truncate(time.Second) // as an index tells it
	// A client that has a newer index keeps it: also after the clock was set back, ours is the newest.
	if last := dateOf(before); valid && !date.After(last) {
		date = last.Add(time.Second)
	}

	signed, err := r.Key.sign(release(suite, index, date))
	if err != nil {
		return false, err
	}

	sum := sha256.Sum256(index)
	byHash := path.Join(path.Dir(indexPath), "by-hash/SHA256", hex.EncodeToString(sum[:]))
	for _, f := range []struct {
		name string
		data []byte
	}{{byHash, index}, {indexPath, index}, {"InRelease", signed}} { // last what points to the others
		if err := writeFile(filepath.Join(dir, f.name), f.data); err != nil {
			return false, err
		}
	}

	return true, removeOldIndexes(filepath.Join(dir, path.Dir(byHash)), path.Base(byHash))
}

// maxIndexes is how many old indexes stay for clients that have read an old InRelease.
const maxIndexes = 4

func removeOldIndexes(dir, newest string) error {
	all, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read old indexes: %w", err)
	}

	var old []fs.FileInfo
	for _, e := range all {
		if info, err := e.Info(); err == nil && e.Name() != newest {
			old = append(old, info)
		}
	}

	slices.SortFunc(old, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for i, info := range old {
		if i >= maxIndexes {
			if err := os.Remove(filepath.Join(dir, info.Name())); err != nil {
				return fmt.Errorf("remove old index: %w", err)
			}
		}
	}

	return nil
}

// stanzas describe the pool's packages, each ending with a newline. A file that is no package keeps no
// other back.
func (p Pool) stanzas(ctx context.Context, leave func(file, why string)) ([]string, error) {
	if p.Index != "" {
		text, err := os.ReadFile(p.Index)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read index of packages: %w", err)
		}

		var all []string
		for s := range strings.SplitSeq(string(text), "\n\n") {
			if s = strings.Trim(s, "\n"); s != "" {
				all = append(all, withPoolPath(s, p.Path))
			}
		}

		return all, nil
	}

	files, err := filepath.Glob(filepath.Join(p.Dir, "*.deb"))
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}

	var all []string
	for _, file := range files {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}

		s, err := StanzaOf(file)
		if err != nil {
			leave(file, err.Error())
			continue
		}

		all = append(all, withPoolPath(s, p.Path))
	}

	return all, nil
}

// withPoolPath puts the pool's path before a stanza's file name.
func withPoolPath(stanza, pool string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimRight(stanza, "\n") + "\n") {
		if name, found := strings.CutPrefix(line, "Filename: "); found {
			line = "Filename: " + pool + "/" + strings.TrimPrefix(name, "./")
		}
		b.WriteString(line)
	}
	return b.String()
}

// StanzaOf is the stanza of a package's file: its control file, name, size and digest.
func StanzaOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("read package: %w", err)
	}
	defer f.Close()

	control, err := ReadControl(f)
	if err != nil {
		return "", fmt.Errorf("read package %s: %w", file, err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", fmt.Errorf("read package %s: %w", file, err)
	}

	h := sha256.New()
	size, err := io.Copy(h, f)
	if err != nil {
		return "", fmt.Errorf("read package %s: %w", file, err)
	}

	return fmt.Sprintf("%sFilename: %s\nSize: %d\nSHA256: %x\n", control, filepath.Base(file), size, h.Sum(nil)), nil
}

// Field is a field of a stanza, such as a control file; "" if it has none of that name.
func Field(stanza, name string) string {
	for line := range strings.Lines(stanza) {
		if key, value, _ := strings.Cut(line, ":"); strings.EqualFold(key, name) {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// release describes the index for clients.
func release(suite string, index []byte, date time.Time) []byte {
	return fmt.Appendf(nil, "Origin: Firstlight\nLabel: Firstlight\nSuite: %[1]s\nCodename: %[1]s\nDate: %[2]s\nArchitectures: amd64\n"+
		"Components: main\nAcquire-By-Hash: yes\nSHA256:\n %[3]x %[4]d %[5]s\n",
		suite, date.UTC().Format(dateForm), sha256.Sum256(index), len(index), indexPath)
}

const dateForm = "Mon, 02 Jan 2006 15:04:05 UTC"

// releaseCovers tells whether a release is that of an index.
func releaseCovers(release, index []byte) bool {
	return bytes.Contains(release, fmt.Appendf(nil, "\n %x %d %s\n", sha256.Sum256(index), len(index), indexPath))
}

func dateOf(release []byte) time.Time {
	d, _ := time.Parse(dateForm, Field(string(release), "Date"))
	return d
}

// writeFile replaces a file as a whole, in a folder that may have to be made.
func writeFile(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return atomicfile.Write(name, data, 0o644)
}
