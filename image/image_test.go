package image

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/debian"
	"firstlight.dev/firstlight/image/lock"
	"firstlight.dev/firstlight/image/recipe"
)

type silent struct{}

func (silent) Log(string)                {}
func (silent) Begin(string, []string)    {}
func (silent) Advance(string, Position)  {}
func (silent) End(string, time.Duration) {}

const smallRecipe = `debian: {suite: trixie, components: [main]}
programs:
  - {name: init, package: .}
roots:
  - {name: box, packages: [systemd], overlays: [{dir: overlays/box}], programs: {init: /usr/bin/init}}
  - {name: tools, variant: unpacked, packages: [e2fsprogs]}
  - {name: boot, variant: unpacked, packages: [shim-signed]}
images:
  - {name: probe, tags: [v1], programs: {init: /probe}}
  - {name: other, tags: [v1], layer: probe}
artifacts:
  - {name: ramdisk, kind: initramfs, root: box, to: /usr/share/firstlight/ramdisk}
  - {name: note, kind: file, file: note.txt, to: /usr/share/firstlight/note}
stick: {name: small, root: box, boot: boot, tools: tools, init: init, kernel: /boot/vmlinuz-*, esp: overlays/esp, site: overlays/site}
`

// builderCode is packages of the names that make parts, each with what it imports.
var builderCode = map[string]string{
	"image/image.go": goFile("image/debian/install", "image/debian/pool", "image/rootfs", "image/disk/nodedisk",
		"image/initramfs", "image/objects", "image/media"),
	"image/tree/tree.go":              goFile(),
	"image/debian/debian.go":          goFile(),
	"image/debian/install/install.go": goFile("image/debian", "image/tree"),
	"image/debian/pool/pool.go":       goFile("image/debian"),
	"image/roottree/roottree.go":      goFile("image/debian/install"),
	"image/oci/oci.go":                goFile("image/tree"),
	"image/rootfs/rootfs.go":          goFile("image/roottree", "image/oci"),
	"image/disk/disk.go":              goFile(),
	"image/disk/nodedisk/nodedisk.go": goFile("image/disk", "image/tree"),
	"image/initramfs/initramfs.go":    goFile("image/tree"),
	"image/objects/objects.go":        goFile(),
	"image/media/media.go":            goFile(),
}

func goFile(imports ...string) string {
	text := "package code\n"
	for _, path := range imports {
		text += fmt.Sprintf("import _ %q\n", "example.org/small/"+path)
	}
	return text
}

// repository makes a small repository with recipe and lock, and a builder for it.
func repository(t *testing.T) *Builder {
	t.Helper()
	top := t.TempDir()
	files := map[string]string{
		"go.mod": "module example.org/small\n\ngo 1.24\n", "main.go": "package main\n\nfunc main() {}\n",
		"note.txt": "note", "overlays/box/etc/motd": "box", "overlays/esp/x": "x", "overlays/site/README.txt": "read", RecipePath: smallRecipe,
	}
	maps.Copy(files, builderCode)
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(top, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(top, name), []byte(text), 0o644))
	}
	r, err := recipe.ReadFile(filepath.Join(top, RecipePath))
	require.NoError(t, err)
	l := &lock.Lock{Epoch: 1700000000, Toolchain: toolchain(t, top)}
	for i := range r.Roots {
		p := debian.Package{Name: r.Roots[i].Packages[0], Version: "1", Arch: "amd64", Section: "admin", Size: 1, SHA256: strings.Repeat(fmt.Sprint(i), 64), Path: "debian/pool/x.deb"}
		require.NoError(t, l.AddRoot(r.Roots[i].Name, lock.RequestDigest(r, &r.Roots[i]), []debian.Package{p}))
	}
	require.NoError(t, l.WriteFile(filepath.Join(top, LockPath)))
	return &Builder{Top: top, Store: cache.Store{Dir: t.TempDir()}, Mirror: "http://127.0.0.1:1/debian", Out: filepath.Join(top, "build", "small.img"), Log: io.Discard, Progress: silent{}}
}

func toolchain(t *testing.T, dir string) string {
	t.Helper()
	cmd := exec.Command("go", "env", "GOVERSION")
	cmd.Dir = dir
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.Fields(string(out))[0]
}

func TestPlanNamesEveryPartAndWhy(t *testing.T) {
	b := repository(t)
	steps, err := b.Plan(context.Background())
	require.NoError(t, err)
	var got strings.Builder
	for _, step := range steps {
		fmt.Fprintf(&got, "%s %s: %s\n", step.Action, step.Part, strings.Join(step.Why, ", "))
	}
	goldentest.Check(t, "testdata/plan.txt", got.String())
	entries, err := os.ReadDir(b.Store.Dir)
	require.NoError(t, err)
	assert.Empty(t, entries, "a plan makes nothing")
}

func TestLockedRefusesAndNamesEachDifference(t *testing.T) {
	b := repository(t)
	path := filepath.Join(b.Top, LockPath)
	l, err := lock.ReadFile(path)
	require.NoError(t, err)
	l.Toolchain = "go1.1"
	l.Modules = []lock.Module{{Dir: ".", Path: "example.org/gone", Version: "v1.0.0", Sum: "h1:x="}}
	require.NoError(t, l.WriteFile(path))
	text := strings.Replace(smallRecipe, "packages: [systemd]", "packages: [systemd, udev]", 1)
	require.NoError(t, os.WriteFile(filepath.Join(b.Top, RecipePath), []byte(text), 0o644))

	_, err = b.Build(context.Background(), Locked)
	require.Error(t, err)
	assert.Contains(t, err.Error(), "build locked: 3 differences from assets/recipe.lock: root box asks for other packages; toolchain go1.1 -> go")
	assert.Contains(t, err.Error(), "module example.org/gone (./go.mod) v1.0.0 removed; run `firstlight lock` and commit it")
	assert.NotContains(t, err.Error(), "\n")

	require.NoError(t, os.Remove(path))
	_, err = b.Build(context.Background(), Locked)
	assert.EqualError(t, err, "read assets/recipe.lock: it is missing; run `firstlight lock`")
	_, err = b.Plan(context.Background())
	assert.ErrorContains(t, err, "run `firstlight lock` first")
}

// TestAWrongSiteIsToldBeforeAnythingIsMade: each problem on a line of its own.
func TestAWrongSiteIsToldBeforeAnythingIsMade(t *testing.T) {
	b := repository(t)
	b.Site = filepath.Join(t.TempDir(), "site.yaml")
	_, err := b.Build(t.Context(), Loose)
	require.ErrorContains(t, err, "read site: open "+b.Site)
	require.NoError(t, os.WriteFile(b.Site, []byte("nam: x\nnodes: 3\n"), 0o600))
	for name, run := range map[string]func() error{
		"build": func() error { _, err := b.Build(t.Context(), Loose); return err },
		"plan":  func() error { _, err := b.Plan(t.Context()); return err },
	} {
		err := run()
		require.Error(t, err, name)
		lines := strings.Split(err.Error(), "\n")
		require.Len(t, lines, 3, name)
		assert.Equal(t, "check site "+b.Site+": 2 problems, nothing is built:", lines[0])
		assert.Equal(t, b.Site+":1: nam: unknown key; did you mean name?", lines[1])
		assert.Contains(t, lines[2], b.Site+":2: nodes: ")
	}
	assert.NoDirExists(t, filepath.Dir(b.Out))

	require.NoError(t, os.WriteFile(b.Site, []byte("name: x\n"), 0o600))
	_, err = b.Plan(t.Context())
	assert.NoError(t, err)
}

func TestFindTop(t *testing.T) {
	b := repository(t)
	top, err := FindTop(filepath.Join(b.Top, "overlays", "box"))
	require.NoError(t, err)
	assert.Equal(t, b.Top, top)
	_, err = FindTop(t.TempDir())
	assert.ErrorContains(t, err, "run this inside the Firstlight repository")
}

// TestTwoBuildsAreEqual builds the stick from nothing but the fetched .debs and Go's own
// caches, in another directory, time zone, locale and umask, there once more in the file of an image of other sources, and compares every
// output.
func TestTwoBuildsAreEqual(t *testing.T) {
	if !strings.Contains(","+os.Getenv("FIRSTLIGHT_TEST")+",", ",build,") {
		t.Skip("builds the whole image twice, which takes minutes: set FIRSTLIGHT_TEST=build")
	}
	dir, err := os.Getwd()
	require.NoError(t, err)
	top, err := FindTop(dir)
	require.NoError(t, err)
	store, err := cache.DefaultStore()
	require.NoError(t, err)
	command := filepath.Join(t.TempDir(), "firstlight")
	run(t, top, nil, "go", "build", "-o", command, "./cmd/firstlight")
	run(t, top, nil, command, "build")
	other, scratch := filepath.Join(t.TempDir(), "a b"), t.TempDir()
	run(t, top, nil, "git", "clone", "--quiet", ".", other)
	if dirty := run(t, top, nil, "git", "status", "--porcelain"); dirty != "" {
		t.Skipf("the working tree has changes that a clone does not: %s", dirty)
	}
	require.NoError(t, os.Symlink(filepath.Join(store.Dir, "deb"), filepath.Join(scratch, "deb")))
	run(t, other, []string{"FIRSTLIGHT_CACHE=" + scratch, "TZ=Asia/Kathmandu", "LC_ALL=tr_TR.UTF-8"}, "sh", "-c", "umask 077; exec "+command+" build")
	main := filepath.Join(other, "cmd", "firstlightd", "main.go")
	text, err := os.ReadFile(main)
	require.NoError(t, err)
	for _, next := range []string{string(text) + "\nfunc init() { println(1) }\n", string(text)} {
		require.NoError(t, os.WriteFile(main, []byte(next), 0o644))
		run(t, other, []string{"FIRSTLIGHT_CACHE=" + scratch}, command, "build")
	}
	for _, name := range []string{"firstlight.img", "firstlight.img.zst", "firstlight.img.bmap", "firstlight.spdx.json"} {
		first, err := cache.FileDigest(filepath.Join(top, "build", name))
		require.NoError(t, err)
		second, err := cache.FileDigest(filepath.Join(other, "build", name))
		require.NoError(t, err)
		assert.Equal(t, first, second, name)
	}
}

func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
	return string(out)
}
