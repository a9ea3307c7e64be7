// Package goldentest holds files of the tree to what tests make: golden files beside the tests, and parts of pages.
// With the flag -update, which every test binary has that imports it, the tests write them.
package goldentest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
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

// CheckPart compares what a test made, whole lines, with the part of a page between `<!-- begin NAME -->` and
// `<!-- end -->`, or writes it there.
func CheckPart(t testing.TB, page, name, made string) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	begin := "<!-- begin " + name + " -->\n"
	before, rest, hasBegin := strings.Cut(string(text), begin)
	was, after, hasEnd := strings.Cut(rest, "<!-- end -->")
	require.True(t, hasBegin && hasEnd, "%s has no part %s; put where it belongs:\n%s<!-- end -->", page, name, begin)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(before+begin+made+"<!-- end -->"+after), 0o644))
		return
	}

	assert.Equal(t, was, made, "%s: part %s; -update writes it", page, name)
}
