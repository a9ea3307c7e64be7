// Package page holds the blocks of documentation pages to what tests print. A block stands between `<!-- begin NAME -->`
// and `<!-- end -->`, in a fence of three backticks.
package page

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	fence = "```\n"
	end   = fence + "<!-- end -->"
)

// Check compares a block of a page, a path, with what was printed, or writes it if update is set. A run in QEMU prints
// other times on every machine: such a test calls it only to update.
func Check(t *testing.T, path, block, printed string, update bool) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	before, was, after, err := cut(string(text), block)
	require.NoError(t, err, path)
	if update {
		require.NoError(t, os.WriteFile(path, []byte(before+printed+after), 0o644))
		return
	}

	assert.Equal(t, printed, was, "%s; -update writes it", path)
}

// CheckTable is Check for what kubectl prints: columns as wide as they happen to be, and ages.
func CheckTable(t *testing.T, path, block, printed string, update bool) {
	t.Helper()
	if update {
		Check(t, path, block, printed, true)
		return
	}

	text, err := os.ReadFile(path)
	require.NoError(t, err)
	_, was, _, err := cut(string(text), block)
	require.NoError(t, err, path)
	assert.Equal(t, ageless(printed), ageless(was), "%s; -update writes it", path)
}

var (
	age   = regexp.MustCompile(`\s(?:\d+m)?\d+s(?: \(x\d+ over [^)]*\))?(?:\s|$)`)
	blank = regexp.MustCompile(` {2,}`)
)

// ageless is a table without its widths and its ages.
func ageless(table string) string {
	return blank.ReplaceAllString(age.ReplaceAllString(table, "  AGE  "), "  ")
}

// cut divides a page into what is before a block, the block, and what is after it.
func cut(text, block string) (before, was, after string, err error) {
	begin := "<!-- begin " + block + " -->\n" + fence
	head, rest, found := strings.Cut(text, begin)
	if !found {
		return "", "", "", fmt.Errorf("it has no block %s: put it where its output belongs, empty, and run the test with "+
			"-update:\n%s%s", block, begin, end)
	}

	was, tail, found := strings.Cut(rest, end)
	if !found {
		return "", "", "", fmt.Errorf("its block %s has no end", block)
	}

	return head + begin, was, end + tail, nil
}
