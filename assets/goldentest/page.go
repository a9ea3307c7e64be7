package goldentest

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Marks of a part of a page; a block is a part in a fence.
const (
	end   = "<!-- end -->"
	fence = "```\n"
)

// CheckPart compares what a test made, whole lines, with the part of a page between `<!-- begin NAME -->` and
// `<!-- end -->`, or writes it there.
func CheckPart(t testing.TB, page, name, made string) {
	t.Helper()
	before, was, after := cutPart(t, page, name)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(before+made+after), 0o644))
		return
	}

	assert.Equal(t, was, made, "%s: part %s; -update writes it", page, name)
}

// CheckBlock compares a block of a page with what was printed, or writes it.
func CheckBlock(t testing.TB, page, name, printed string) {
	t.Helper()
	CheckPart(t, page, name, fence+printed+fence)
}

// WriteBlock writes a block with -update and compares nothing: a run in QEMU prints other times on every machine. The
// page stays as it is after a failure.
func WriteBlock(t testing.TB, page, name, printed string) {
	t.Helper()
	if *update && !t.Failed() {
		CheckBlock(t, page, name, printed)
	}
}

// CheckTable is CheckBlock for what kubectl prints: columns as wide as they happen to be, and ages.
func CheckTable(t testing.TB, page, name, printed string) {
	t.Helper()
	if *update {
		CheckBlock(t, page, name, printed)
		return
	}

	_, was, _ := cutPart(t, page, name)
	assert.Equal(t, ageless(was), ageless(fence+printed+fence), "%s: table %s; -update writes it", page, name)
}

var (
	age   = regexp.MustCompile(`\s(?:\d+m)?\d+s(?: \(x\d+ over [^)]*\))?(?:\s|$)`)
	blank = regexp.MustCompile(` {2,}`)
)

// ageless is a table without its widths and its ages.
func ageless(table string) string {
	return blank.ReplaceAllString(age.ReplaceAllString(table, "  AGE  "), "  ")
}

// cutPart divides a page into what is before a part, the part, and what is after it.
func cutPart(t testing.TB, page, name string) (before, was, after string) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	begin := "<!-- begin " + name + " -->\n"
	before, rest, hasBegin := strings.Cut(string(text), begin)
	was, after, hasEnd := strings.Cut(rest, end)
	require.True(t, hasBegin && hasEnd, "%s has no part %s; put where it belongs:\n%s%s", page, name, begin, end)
	return before + begin, was, end + after
}
