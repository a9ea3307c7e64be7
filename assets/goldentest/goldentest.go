// Package goldentest holds files of the tree to what tests make: golden files beside the tests, and parts of pages.
// With the flag -update, which every test binary has that imports it, the tests write them.
package goldentest

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files and the parts of pages that tests make")

// IsUpdating reports whether -update is given.
func IsUpdating() bool { return *update }

// Check compares what a test made with a file, a path from the folder of the test, or writes it.
func Check[Text string | []byte](t testing.TB, path string, made Text) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(made), 0o644))
		return
	}

	want, err := os.ReadFile(path)
	require.NoError(t, err, "-update writes it")
	assert.Equal(t, string(want), string(made), "%s; -update writes it", path)
}
