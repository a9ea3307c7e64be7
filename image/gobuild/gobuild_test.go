package gobuild_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/gobuild"
	"firstlight.dev/firstlight/image/recipe"
)

// TestKey changes one file of a module at a time and looks whether a program counts as changed.
func TestKey(t *testing.T) {
	cases := []struct {
		file, text string
		changes    bool
	}{
		{"go.mod", "module x\n\ngo 1.26\n\ntoolchain go1.26.1\n", true},
		{"cmd/one/main.go", "package main\n\nfunc main() { println(1) }\n", true},
		{"cmd/one/second.go", "package main\n", true},
		{"lib/lib.go", "package lib\n\nconst Two = 2\n", true},
		{"lib/table.txt", "two", true},
		{"lib/broken.go", "pack", true},
		{"cmd/other/sub/sub.go", "package sub\n", true}, // one may import it
		{"cmd/other/main.go", "package main\n\nfunc main() { println(2) }\n", false},
		{"lib/generate.go", "//go:build ignore\n\npackage main\n", false},
		{"cmd/one/main_test.go", "package main\n", false},
		{"docs/page.md", "page", false},
		{"lib/testdata/x.go", "package x\n", false},
	}
	for _, c := range cases {
		t.Run(c.file, func(t *testing.T) {
			top := t.TempDir()
			write := func(file, text string) {
				path := filepath.Join(top, file)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
			}
			write("go.mod", "module x\n\ngo 1.26\n")
			write("cmd/one/main.go", "package main\n\nfunc main() {}\n")
			write("cmd/other/main.go", "package main\n\nfunc main() {}\n")
			write("lib/lib.go", "package lib\n")
			key := func() string {
				k, err := gobuild.Builder{Top: top, Toolchain: "go1.26.1"}.Key(&recipe.Program{Name: "one", Package: "./cmd/one"})
				require.NoError(t, err)
				return k
			}
			before := key()
			write(c.file, c.text)
			assert.Equal(t, c.changes, before != key())
		})
	}
}
