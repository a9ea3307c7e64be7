package lock_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/debian"
	"firstlight.dev/firstlight/image/lock"
	"firstlight.dev/firstlight/image/recipe"
)

func deb(name, version, digest string) debian.Package {
	return debian.Package{Name: name, Version: version, Arch: "amd64", Section: "admin", Size: 10, SHA256: strings.Repeat(digest, 64), Path: "debian/pool/" + name + ".deb"}
}

func example(t *testing.T) *lock.Lock {
	t.Helper()
	l := &lock.Lock{Epoch: 1700000000, Toolchain: "go1.26.8", Images: map[string]string{"registry": "host/x@sha256:" + strings.Repeat("a", 64)}}
	require.NoError(t, l.AddRoot("box", "1111", []debian.Package{deb("systemd", "257", "a"), deb("udev", "257", "b"), deb("zlib1g", "1:1.3", "c")}))
	require.NoError(t, l.AddRoot("tools", "2222", []debian.Package{deb("zlib1g", "1:1.3", "c")}))
	l.Modules = []lock.Module{{Dir: ".", Path: "example.org/a", Version: "v1.0.0", Sum: "h1:x="}, {Dir: "sub", Path: "example.org/a", Version: "v1.1.0"}}
	return l
}

func TestTextIsReadBack(t *testing.T) {
	l := example(t)
	text := l.Text()
	again, err := lock.Parse("recipe.lock", text)
	require.NoError(t, err)
	assert.Equal(t, l, again)
	assert.Equal(t, string(text), string(again.Text()))
	file := filepath.Join(t.TempDir(), "recipe.lock")
	require.NoError(t, l.WriteFile(file))
	read, err := lock.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, l, read)
}

func TestDiffNamesEachDifference(t *testing.T) {
	from, to := example(t), example(t)
	assert.Empty(t, lock.Diff(from, to))
	assert.True(t, lock.SameDebs(from, to))

	to.Toolchain = "go1.27.0"
	to.Requested["box"], to.Requested["new"] = "3333", "4444"
	delete(to.Requested, "tools")
	newer := to.Debs["systemd"]
	newer.Version = "258"
	to.Debs["systemd"] = newer
	other := to.Debs["udev"]
	other.SHA256 = strings.Repeat("d", 64)
	to.Debs["udev"] = other
	moved := to.Debs["zlib1g"]
	moved.Roots = []string{"box", "new"}
	to.Debs["zlib1g"] = moved
	to.Debs["bash"] = lock.Deb{Package: deb("bash", "5", "e"), Roots: []string{"new"}}
	to.Images = map[string]string{}
	to.Modules = []lock.Module{{Dir: ".", Path: "example.org/a", Version: "v1.0.0", Sum: "h1:y="}, {Dir: "sub", Path: "example.org/b", Version: "v2.0.0"}}

	assert.Equal(t, []string{
		"toolchain go1.26.8 -> go1.27.0",
		"root box asks for other packages",
		"root new added",
		"root tools removed",
		"deb bash added at 5 in [new]",
		"deb systemd 257 -> 258",
		"deb udev 257 has another sha256",
		"deb zlib1g is in [box new] and was in [box tools]",
		"image registry host/x@sha256:" + strings.Repeat("a", 64) + " -> none",
		"module example.org/a (./go.mod) v1.0.0 has another sum",
		"module example.org/a (sub/go.mod) v1.1.0 removed",
		"module example.org/b (sub/go.mod) added at v2.0.0",
	}, lock.Diff(from, to))
	assert.False(t, lock.SameDebs(from, to))
}

func TestOnePackageHasOneVersion(t *testing.T) {
	l := example(t)
	err := l.AddRoot("third", "5555", []debian.Package{deb("zlib1g", "2", "f")})
	assert.EqualError(t, err, "lock root third: zlib1g is 2 here and 1:1.3 in root box")
}

func TestStaleFollowsTheRecipe(t *testing.T) {
	r := &recipe.Recipe{Debian: recipe.Debian{Suite: "trixie", Components: []string{"main"}}, Roots: []recipe.Root{{Name: "box", Packages: []string{"systemd", "udev"}}}}
	l := &lock.Lock{}
	assert.Equal(t, []string{"root box is new"}, l.StaleRoots(r))
	require.NoError(t, l.AddRoot("box", lock.RequestDigest(r, &r.Roots[0]), nil))
	assert.Empty(t, l.StaleRoots(r))
	r.Roots[0].Packages = []string{"udev", "systemd"}
	assert.Empty(t, l.StaleRoots(r), "the order does not matter")
	r.Roots[0].Overlays = []recipe.Overlay{{Dir: "x"}}
	assert.Empty(t, l.StaleRoots(r), "overlays are not resolved")
	r.Roots[0].Packages = append(r.Roots[0].Packages, "bash")
	assert.Equal(t, []string{"root box asks for other packages"}, l.StaleRoots(r))
	r.Roots[0].Packages = r.Roots[0].Packages[:2]
	r.Debian.Suite = "forky"
	assert.Len(t, l.StaleRoots(r), 1)
	r.Debian.Suite = "trixie"
	r.Images = []recipe.Image{{Name: "x", Reference: "host/x@sha256:0"}}
	assert.Equal(t, []string{"image x asks for another digest"}, l.StaleRoots(r))
}

func TestDamagedLocksAreNamed(t *testing.T) {
	good := string(example(t).Text())
	for find, c := range map[string]struct{ with, err string }{
		"toolchain go1.26.8":             {"compiler gcc", `recipe.lock:3: "compiler gcc" is not a line of a lock; restore`},
		"epoch 1700000000":               {"epoch soon", `recipe.lock:2: epoch "soon" is not a time; restore`},
		" 10 " + strings.Repeat("a", 64): {" 10 abc", `sha256 "abc" of systemd is not a digest`},
		"amd64 admin 10":                 {"amd64 admin ten", `size "ten" of systemd is not a number`},
		"deb udev":                       {"deb systemd", "deb systemd is there twice"},
		"asked=1111":                     {"1111", "root box does not say asked="},
	} {
		_, err := lock.Parse("recipe.lock", []byte(strings.Replace(good, find, c.with, 1)))
		assert.ErrorContains(t, err, c.err, find)
	}
	_, err := lock.Parse("recipe.lock", nil)
	assert.ErrorContains(t, err, "epoch or toolchain is missing")
}

func TestTheLockInGitFitsTheRecipe(t *testing.T) {
	r, err := recipe.ReadFile("../../assets/recipe.yaml")
	require.NoError(t, err)
	l, err := lock.ReadFile("../../assets/recipe.lock")
	require.NoError(t, err)
	assert.Empty(t, l.StaleRoots(r), "run `firstlight lock` and commit assets/recipe.lock")
	assert.NotContains(t, string(l.Text()), "://", "the lock names no mirror")
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("epoch 1\ntoolchain go1\ndeb a 1 all x 1 " + strings.Repeat("0", 64) + " p r"))
	f.Add([]byte("module . a v1 -\nroot x asked=1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := lock.Parse("recipe.lock", text)
		if err != nil {
			return
		}
		again, err := lock.Parse("recipe.lock", l.Text())
		require.NoError(t, err)
		assert.Empty(t, lock.Diff(l, again))
	})
}
