package kubernetes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/extent"
	"firstlight.dev/firstlight/daemon/metal/packages"
)

// IndexName is the file in a pool's directory with a stanza for each package.
const IndexName = "Packages"

// Pool keeps the packages in a directory, without what the stick's root holds of them: next to nothing. It is safe
// for use by several goroutines.
type Pool struct {
	Root fs.FS  // the stick's, read-only
	Dir  string // is made; goes with the boot, as Root does: what an earlier daemon of this boot made there holds

	mu sync.Mutex
}

// Made reports whether the packages are in Dir. Their index is written last.
func (p *Pool) Made() bool {
	_, err := os.Stat(filepath.Join(p.Dir, IndexName))
	return err == nil
}

// Make writes what is kept of the packages, and their index, unless they are there.
func (p *Pool) Make() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Made() {
		return nil
	}

	all, err := Build(p.Root)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.Dir, 0o755); err != nil {
		return fmt.Errorf("keep packages: %w", err)
	}

	var stanzas []string
	for _, b := range all {
		if err := keep(b, filepath.Join(p.Dir, b.Name)); err != nil {
			return fmt.Errorf("keep package %s: %w", b.Name, err)
		}
		stanzas = append(stanzas, b.Stanza)
	}

	index := []byte(strings.Join(stanzas, "\n"))
	if err := atomicfile.Write(filepath.Join(p.Dir, IndexName), index, 0o644); err != nil {
		return fmt.Errorf("keep packages: %w", err)
	}

	return nil
}

// keep writes the two files that are kept of a package. The one with holes is last: a reader looks for it first.
func keep(b *packages.Built, name string) error {
	if err := atomicfile.Write(name+extent.SuffixExtents, extent.Encode(b.Extents), 0o644); err != nil {
		return err
	}

	part := name + ".part"
	f, err := os.Create(part)
	if err != nil {
		return err
	}

	err = b.Own(func(data []byte, at int64) error {
		_, err := f.WriteAt(data, at)
		return err
	})
	if err := errors.Join(err, f.Truncate(b.Size), f.Close()); err != nil {
		return err
	}

	return os.Rename(part, name+extent.SuffixOwn)
}

// Open opens a package, whole, by the name of its file. Where none was made yet, since the appliance has just started,
// all are made before. The error is fs.ErrNotExist where there is none of that name.
func (p *Pool) Open(name string) (*extent.File, error) {
	if !fs.ValidPath(name) || strings.Contains(name, "/") || !strings.HasSuffix(name, ".deb") {
		return nil, fs.ErrNotExist
	}
	if err := p.Make(); err != nil {
		return nil, err
	}

	return extent.Open(kept{p.Root, os.DirFS(p.Dir)}, name)
}

// kept is the files of a pool's directory, and the rest of the root behind them.
type kept struct{ root, dir fs.FS }

func (k kept) Open(name string) (fs.File, error) {
	if strings.Contains(name, "/") {
		return k.root.Open(name)
	}
	return k.dir.Open(name)
}
