package gobuild_test

import (
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"

	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/gobuild"
	"firstlight.dev/firstlight/image/lock"
	"firstlight.dev/firstlight/image/recipe"
)

const library = `package greet

import "runtime"

func Text() string {
	_, file, _, _ := runtime.Caller(0)
	return "good day from " + file
}
`

// greeter makes a program that prints what a module from elsewhere says, and says where its go.mod is.
// The module comes out of a proxy in a directory, into a module cache of its own.
func greeter(t *testing.T) gobuild.Builder {
	t.Helper()
	source, proxy, modules, top := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	write := func(dir, file, text string) {
		path := filepath.Join(dir, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	mod := "module example.org/greet\n\ngo 1.24\n"
	write(source, "go.mod", mod)
	write(source, "greet.go", library)
	write(source, "twice.go", "package greet\n\n// old old\n")
	write(source, "shout/main.go", "package main\n\nfunc main() { print(\"HO\") }\n")
	versions := "example.org/greet/@v/"
	write(proxy, versions+"v1.2.0.mod", mod)
	write(proxy, versions+"v1.2.0.info", `{"Version":"v1.2.0"}`)
	archive := filepath.Join(proxy, versions, "v1.2.0.zip")
	f, err := os.Create(archive)
	require.NoError(t, err)
	require.NoError(t, zip.CreateFromDir(f, module.Version{Path: "example.org/greet", Version: "v1.2.0"}, source))
	require.NoError(t, f.Close())
	sum, err := dirhash.HashZip(archive, dirhash.Hash1)
	require.NoError(t, err)
	modSum, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(mod)), nil })
	require.NoError(t, err)

	write(top, "go.mod", "module example.org/hello\n\ngo 1.24\n\nrequire (\n\texample.org/greet v1.2.0\n\texample.org/near v0.0.0\n)\n\nreplace example.org/near => ./near\n")
	write(top, "go.sum", "example.org/greet v1.2.0 "+sum+"\nexample.org/greet v1.2.0/go.mod "+modSum+"\n")
	write(top, "main.go", "package main\n\nimport (\n\t\"example.org/greet\"\n\t\"example.org/near\"\n)\n\nfunc main() { print(greet.Text() + near.Mark) }\n")
	write(top, "crier/main.go", "package main\n\nimport \"example.org/greet/shout\"\n\nfunc main() { shout.Main() }\n")
	write(top, "near/go.mod", "module example.org/near\n\ngo 1.24\n")
	write(top, "near/near.go", "package near\n\nconst Mark = \"!\"\n")
	t.Setenv("GOPROXY", "file://"+proxy)
	t.Setenv("GONOSUMDB", "example.org")
	t.Setenv("GOMODCACHE", modules)
	t.Cleanup(func() { // go makes it read-only
		assert.NoError(t, filepath.WalkDir(modules, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				return os.Chmod(path, 0o700)
			}
			return err
		}))
	})
	toolchain, err := gobuild.ToolchainVersion(t.Context(), top)
	require.NoError(t, err)
	return gobuild.Builder{Top: top, Toolchain: toolchain, Log: io.Discard}
}

func hello(mends ...recipe.Patch) *recipe.Program {
	return &recipe.Program{Name: "hello", Package: ".", Patches: mends}
}

func greetMend(find, with string) recipe.Patch {
	at := recipe.Pos{File: "recipe.yaml", Line: 7, Path: "programs[0].mends[0]"}
	return recipe.Patch{Pos: at, Module: "example.org/greet", File: "greet.go", Old: find, New: with, Why: "it is late"}
}

// TestMends compiles a program with a mended module. What differs from the program without is the
// mended text, and that the module says to be replaced.
func TestMends(t *testing.T) {
	b := greeter(t)
	out := t.TempDir()
	build := func(name string, p *recipe.Program) string {
		t.Helper()
		file := filepath.Join(out, name)
		require.NoError(t, b.Build(t.Context(), p, file))
		return file
	}
	says := func(file string) string {
		t.Helper()
		text, err := exec.Command(file).CombinedOutput()
		require.NoError(t, err)
		return string(text)
	}
	plain := build("plain", hello())
	assert.Equal(t, "good day from example.org/greet@v1.2.0/greet.go!", says(plain))

	late := hello(greetMend("good day", "good night"), greetMend("night from", "night to you from"))
	mended := build("mended", late)
	assert.Equal(t, "good night to you from example.org/greet@v1.2.0/greet.go!", says(mended))

	sum := []lock.Module{{Path: "example.org/greet", Version: "v1.2.0"}}
	contents, err := gobuild.BuiltModules(mended)
	require.NoError(t, err)
	assert.Equal(t, sum, contents)
	locked, err := b.Modules(t.Context(), late)
	require.NoError(t, err)
	contents, err = gobuild.BuiltModules(plain)
	require.NoError(t, err)
	sum[0].Sum = contents[0].Sum
	assert.Equal(t, sum, contents)
	sum[0].Dir = "."
	assert.Equal(t, sum, locked)
}

// TestElsewhereTheBytesAreTheSame compiles a mended program twice, the second time in other directories and
// with nothing compiled, and holds the count of that to what go says.
func TestElsewhereTheBytesAreTheSame(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles Go's own packages into an empty cache, which takes long: leave out -short")
	}
	b := greeter(t)
	out := t.TempDir()
	late := hello(greetMend("good day", "good night"))
	one, two := filepath.Join(out, "one"), filepath.Join(out, "two")
	require.NoError(t, b.Build(t.Context(), late, one))

	t.Setenv("GOCACHE", t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	other := filepath.Join(t.TempDir(), "a b")
	require.NoError(t, os.CopyFS(other, os.DirFS(b.Top)))
	cmd := exec.Command("go", "list", "-deps", "-f", `{{if ne .ImportPath "unsafe"}}{{.ImportPath}}{{end}}`, ".")
	cmd.Dir = other
	packages, err := cmd.Output()
	require.NoError(t, err)
	all := len(strings.Fields(string(packages)))
	var reports []gobuild.State
	b.Top, b.Every = other, 20*time.Millisecond
	b.Report = func(s gobuild.State) { reports = append(reports, s) }
	require.NoError(t, b.Build(t.Context(), late, two))

	first, err := cache.FileDigest(one)
	require.NoError(t, err)
	second, err := cache.FileDigest(two)
	require.NoError(t, err)
	assert.Equal(t, first, second)
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	assert.Empty(t, left)

	assert.Greater(t, all, 20)
	assert.Equal(t, gobuild.State{Done: all, All: all, Linking: true}, reports[len(reports)-1])
	assert.True(t, slices.IsSortedFunc(reports, func(a, b gobuild.State) int { return a.Done - b.Done }))
	assert.True(t, slices.ContainsFunc(reports, func(s gobuild.State) bool { return s.All == all && !s.Linking }), "the total is known while packages are compiled: %v", reports)
}

// What is a program of another module, and so can be imported by nobody, becomes a package by two mends.
func TestMendsMakeAProgramAPackage(t *testing.T) {
	b := greeter(t)
	named := greetMend("package main\n", "package shout\n")
	called := greetMend("func main() {", "func Main() {")
	named.File, called.File = "shout/main.go", "shout/main.go"
	crier := &recipe.Program{Name: "crier", Package: "./crier", Patches: []recipe.Patch{named, called}}
	out := filepath.Join(t.TempDir(), "crier")
	require.NoError(t, b.Build(t.Context(), crier, out))
	text, err := exec.Command(out).CombinedOutput()
	require.NoError(t, err)
	assert.Equal(t, "HO", string(text))

	locked, err := b.Modules(t.Context(), crier)
	require.NoError(t, err)
	require.Len(t, locked, 1)
	assert.Equal(t, "example.org/greet v1.2.0", locked[0].Path+" "+locked[0].Version)
	assert.NotEmpty(t, locked[0].Sum)
}

func TestMendsThatDoNotApply(t *testing.T) {
	b := greeter(t)
	gone := greetMend("good evening", "good night")
	twice := greetMend("old", "new")
	twice.File = "twice.go"
	noFile := greetMend("a", "b")
	noFile.File = "gone.go"
	near := greetMend("!", "?")
	near.Module, near.File = "example.org/near", "near.go"
	unknown := greetMend("a", "b")
	unknown.Module = "example.org/unknown"
	for _, c := range []struct {
		mend recipe.Patch
		want string
	}{
		{gone, `greet.go of module example.org/greet has the text to patch 0 times and not once: "good evening"`},
		{twice, `twice.go of module example.org/greet has the text to patch 2 times and not once: "old"`},
		{noFile, "read file of module example.org/greet v1.2.0: open "},
		{near, "module example.org/near is a directory of this repository; change near.go there"},
		{unknown, "find module example.org/unknown: go list: exit status 1: go: "},
	} {
		out := filepath.Join(t.TempDir(), "hello")
		err := b.Build(t.Context(), hello(c.mend), out)
		require.Error(t, err)
		assert.Contains(t, err.Error(), "build program hello: recipe.yaml:7: programs[0].mends[0]: "+c.want)
		assert.NotContains(t, err.Error(), "\n")
		assert.NoFileExists(t, out)
	}
}

func TestMendsAreInTheKey(t *testing.T) {
	b := greeter(t)
	key := func(mends ...recipe.Patch) string {
		k, err := b.Key(hello(mends...))
		require.NoError(t, err)
		return k
	}
	night, reason := greetMend("day", "night"), greetMend("day", "night")
	reason.Why = "nobody is awake"
	assert.NotEqual(t, key(), key(night))
	assert.NotEqual(t, key(night), key(greetMend("day", "morning")))
	assert.Equal(t, key(night), key(reason), "a reason changes no byte")
}

// TestAMistakeIsToldWithoutTheCount: the paths that are counted do not push the compiler's words out.
func TestAMistakeIsToldWithoutTheCount(t *testing.T) {
	b := greeter(t)
	require.NoError(t, os.WriteFile(filepath.Join(b.Top, "main.go"), []byte("package main\n\nfunc main() { none() }\n"), 0o644))
	plain := b.Build(t.Context(), hello(), filepath.Join(t.TempDir(), "hello"))
	require.ErrorContains(t, plain, "build program hello: go build: exit status 1: # example.org/hello | ./main.go:3:15: undefined: none")
	var log strings.Builder
	b.Log, b.Report = &log, func(gobuild.State) {}
	assert.EqualError(t, b.Build(t.Context(), hello(), filepath.Join(t.TempDir(), "hello")), plain.Error())
	assert.Equal(t, "# example.org/hello\n./main.go:3:15: undefined: none\n", log.String())
}
