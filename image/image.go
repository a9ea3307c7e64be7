// Package image turns the recipe into the stick: what is asked (package recipe) is
// resolved to versions and digests (package lock), and only those are built. Every
// part is kept in a cache under the digest of what it was made from, so that a build
// makes what changed and nothing else. docs/image.md walks through it.
package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/debian"
	"firstlight.dev/firstlight/image/gobuild"
	"firstlight.dev/firstlight/image/lock"
	"firstlight.dev/firstlight/image/recipe"
)

// Paths of a repository, from its top.
const (
	RecipePath = "assets/recipe.yaml"
	LockPath   = "assets/recipe.lock"
)

// Builder builds the stick of one repository.
type Builder struct {
	Top      string // directory of the repository
	Store    cache.Store
	Mirror   string // of Debian; empty for this machine's own
	Site     string // site.yaml to put onto the stick; empty for none
	Out      string // the image file; the others lie beside it
	Log      io.Writer
	Progress Progress
}

// Result is what a build made.
type Result struct {
	Files   []File `json:"files"`
	Steps   []Step `json:"steps"`
	Rebuilt bool   `json:"fresh"`          // false when everything was there already
	Site    string `json:"site,omitempty"` // the site document inside, with its passwords: the image is its owner's alone
}

// File is one output.
type File struct {
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// FindTop returns the directory of the repository that dir is in.
func FindTop(dir string) (string, error) {
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, RecipePath)); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf(
				"find %s above %s: not there; run this inside the Firstlight repository", RecipePath, dir,
			)
		}
	}
}

func (b *Builder) path(rel string) string { return filepath.Join(b.Top, filepath.FromSlash(rel)) }

func (b *Builder) goBuilder(toolchain string) gobuild.Builder {
	return gobuild.Builder{Top: b.Top, Toolchain: toolchain, Log: b.Log}
}

// Resolve turns the recipe into a lock: it asks the mirror for the newest versions.
func (b *Builder) Resolve(ctx context.Context, r *recipe.Recipe) (*lock.Lock, error) {
	mirror, err := debian.FindMirror(ctx, b.Mirror)
	if err != nil {
		return nil, err
	}

	l := &lock.Lock{Images: map[string]string{}}
	if err := b.resolveGo(ctx, r, l); err != nil {
		return nil, err
	}

	// apt's indexes stay: the next time only what changed is fetched.
	dir := filepath.Join(b.Store.Dir, "apt", cache.Key(r.Debian.Suite, mirror.Debian)[:16])
	archive, err := debian.Open(ctx, dir, r.Debian.Suite, r.Debian.Components, mirror)
	if err != nil {
		return nil, err
	}

	l.Epoch = archive.Date.Unix()
	for i := range r.Roots {
		root := &r.Roots[i]
		packages, err := archive.Resolve(ctx, debian.Request{
			Essential: root.Variant == recipe.VariantEssential, Packages: root.Packages, Alone: root.Unpack,
		})
		if err != nil {
			return nil, fmt.Errorf("resolve root %s: %w", root.Name, err)
		}
		if err := l.AddRoot(root.Name, lock.RequestDigest(r, root), packages); err != nil {
			return nil, err
		}
	}

	for _, image := range r.Images {
		if image.Reference != "" {
			l.Images[image.Name] = image.Reference
		}
	}

	return l, nil
}

// resolveGo fills in the toolchain and the modules.
func (b *Builder) resolveGo(ctx context.Context, r *recipe.Recipe, l *lock.Lock) error {
	toolchain, err := gobuild.ToolchainVersion(ctx, b.Top)
	if err != nil {
		return err
	}

	l.Toolchain = toolchain
	builder := b.goBuilder(toolchain)
	seen := map[[2]string]bool{}
	for i := range r.Programs {
		modules, err := builder.Modules(ctx, &r.Programs[i])
		if err != nil {
			return err
		}
		for _, m := range modules {
			if key := [2]string{m.Dir, m.Path}; !seen[key] {
				seen[key] = true
				l.Modules = append(l.Modules, m)
			}
		}
	}

	lock.SortModules(l.Modules)
	return nil
}

// Lock resolves the recipe and writes the lock. It returns what changed, one line each.
// When no package changed the old epoch is kept, so that nothing is built anew.
func (b *Builder) Lock(ctx context.Context) ([]string, error) {
	r, err := recipe.ReadFile(b.path(RecipePath))
	if err != nil {
		return nil, err
	}

	old, err := lock.ReadFile(b.path(LockPath))
	if errors.Is(err, fs.ErrNotExist) {
		old, err = &lock.Lock{}, nil
	}

	if err != nil {
		return nil, err
	}

	fresh, err := b.Resolve(ctx, r)
	if err != nil {
		return nil, err
	}

	if old.Epoch != 0 && lock.SameDebs(old, fresh) {
		fresh.Epoch = old.Epoch
	}

	return lock.Diff(old, fresh), fresh.WriteFile(b.path(LockPath))
}

// loadResolved reads recipe and lock and makes them agree. Locked, every difference is an
// error; otherwise what the recipe asks anew is resolved and the lock rewritten.
func (b *Builder) loadResolved(ctx context.Context, mode Mode) (*recipe.Recipe, *lock.Lock, error) {
	r, err := recipe.ReadFile(b.path(RecipePath))
	if err != nil {
		return nil, nil, err
	}

	l, err := lock.ReadFile(b.path(LockPath))
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return nil, nil, err
	}
	if mode == Locked {
		if missing {
			return nil, nil, fmt.Errorf("read %s: it is missing; run `firstlight lock`", LockPath)
		}
		return r, l, b.checkLock(ctx, r, l)
	}

	if missing {
		l = &lock.Lock{}
	}

	if stale := l.StaleRoots(r); missing || len(stale) > 0 {
		if mode == PlanOnly {
			return nil, nil, fmt.Errorf(
				"plan: %s is out of date (%s); run `firstlight lock` first", LockPath, strings.Join(stale, "; "),
			)
		}

		b.Progress.Begin("lock", stale)
		if _, err := b.Lock(ctx); err != nil {
			return nil, nil, err
		}
		if l, err = lock.ReadFile(b.path(LockPath)); err != nil {
			return nil, nil, err
		}
	}

	return r, l, nil
}

// checkLock names every way in which recipe, Go modules and toolchain deviate from the lock.
func (b *Builder) checkLock(ctx context.Context, r *recipe.Recipe, l *lock.Lock) error {
	differences := l.StaleRoots(r)
	now := &lock.Lock{Requested: l.Requested, Debs: l.Debs, Images: l.Images}
	if err := b.resolveGo(ctx, r, now); err != nil {
		return err
	}

	differences = append(differences, lock.Diff(l, now)...)
	if len(differences) > 0 {
		return fmt.Errorf(
			"build locked: %d differences from %s: %s; run `firstlight lock` and commit it", len(differences),
			LockPath, strings.Join(differences, "; "),
		)
	}

	return nil
}

// Mode says how a build treats the lock.
type Mode int

// Modes.
const (
	Loose    Mode = iota // resolve anew what the recipe asks differently
	Locked               // refuse to deviate from the lock
	PlanOnly             // only say what would be built
)
