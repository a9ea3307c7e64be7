package image

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/gobuild"
	"firstlight.dev/firstlight/image/lock"
	"firstlight.dev/firstlight/image/recipe"
)

func TestCompiling(t *testing.T) {
	next := []string{"etcd"}
	cases := []struct {
		state gobuild.State
		want  Position
	}{
		{gobuild.State{}, Position{Doing: "reading sources", Next: []string{"compiling", "linking", "etcd"}}},
		{gobuild.State{Fetched: 3}, Position{Doing: "3 Go modules fetched", Next: []string{"compiling", "linking", "etcd"}}},
		{gobuild.State{Fetched: 3, Done: 1}, Position{Doing: "compiling", Next: []string{"linking", "etcd"}}},
		{gobuild.State{Done: 1, All: 2}, Position{Done: 1, All: 2, Next: []string{"linking", "etcd"}}},
		{gobuild.State{Done: 2, All: 2, Linking: true}, Position{Doing: "linking", Next: next}},
	}
	for _, c := range cases {
		assert.Equal(t, c.want, compilePosition(c.state, next))
	}
}

func TestFirstRun(t *testing.T) {
	few, many := []string{"kubernetes", "etcd"}, []string{"kubernetes", "etcd", "coredns", "pause", "bridge"}
	cases := []struct {
		missing    []string
		processors int
		want       string
	}{
		{few, 1, "first run: not in the cache: kubernetes, etcd; a first run takes about 40 minutes on one processor; interrupted, it continues where it was"},
		{many, 2, "first run: not in the cache: kubernetes, etcd, coredns and 2 more; a first run takes about 20 minutes on 2 processors; interrupted, it continues where it was"},
		{few, 3, "first run: not in the cache: kubernetes, etcd; a first run takes about 15 minutes on 3 processors; interrupted, it continues where it was"},
		{few, 64, "first run: not in the cache: kubernetes, etcd; a first run takes about 5 minutes on 64 processors; interrupted, it continues where it was"},
	}
	for _, c := range cases {
		assert.Equal(t, c.want, firstRun(c.missing, c.processors))
	}
}

// heard remembers what a build says before its first part.
type heard struct{ notes []string }

func (h *heard) Log(line string)         { h.notes = append(h.notes, line) }
func (*heard) Begin(string, []string)    {}
func (*heard) Advance(string, Position)  {}
func (*heard) End(string, time.Duration) {}

// TestOnlyAFirstRunIsAnnounced looks at one program from elsewhere and one of this repository.
func TestOnlyAFirstRunIsAnnounced(t *testing.T) {
	top := t.TempDir()
	for _, dir := range []string{".", "elsewhere"} {
		require.NoError(t, os.MkdirAll(filepath.Join(top, dir), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(top, dir, "go.mod"), []byte("module x\n"), 0o644))
	}
	ours, theirs := recipe.Program{Name: "ours", Package: "."}, recipe.Program{Name: "theirs", Module: "elsewhere", Package: "."}
	cases := []struct {
		name   string
		cached string
		last   map[string]Inputs
		said   bool
	}{
		{name: "first", said: true},
		{name: "interrupted before", cached: "ours", said: true},
		{name: "interrupted after", cached: "theirs"},
		{name: "a later one", last: map[string]Inputs{"program ours": {}}},
	}
	for _, c := range cases {
		store, h := cache.Store{Dir: t.TempDir()}, &heard{}
		b := &build{
			Builder: &Builder{Top: top},
			session: &session{store: store, progress: h, last: c.last},
			r:       &recipe.Recipe{Programs: []recipe.Program{ours, theirs}},
			l:       &lock.Lock{Toolchain: "go1.26.1"},
		}
		l := &list{build: b}
		b.parts = l.programs(func(string) bool { return true })
		require.NoError(t, l.err)
		for _, p := range b.parts {
			if p.Name == c.cached {
				_, err := store.Do(p.dir(), p.Inputs.key(p.Kind, p.Name), func(path string) error { return os.WriteFile(path, nil, 0o755) })
				require.NoError(t, err)
			}
		}
		b.announce()
		if c.said {
			require.Len(t, h.notes, 1, c.name)
			assert.Contains(t, h.notes[0], "first run: not in the cache: theirs; ", c.name)
		} else {
			assert.Empty(t, h.notes, c.name)
		}
	}
}
