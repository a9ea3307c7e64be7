package goldentest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// observed is a test that may fail.
type observed struct {
	testing.TB
	failed bool
}

func (o *observed) Helper()               {}
func (o *observed) Errorf(string, ...any) { o.failed = true }
func (o *observed) FailNow()              { panic(o) }

// fails reports whether a test fails.
func fails(t *testing.T, test func(testing.TB)) bool {
	o := &observed{TB: t}
	func() {
		defer func() {
			if r := recover(); r != nil && r != any(o) {
				panic(r)
			}
		}()
		test(o)
	}()
	return o.failed
}

func setUpdate(t *testing.T, value bool) {
	before := *update
	*update = value
	t.Cleanup(func() { *update = before })
}

func TestAFileIsWrittenThenCompared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "testdata", "golden.txt")
	setUpdate(t, false)
	assert.True(t, fails(t, func(t testing.TB) { Check(t, path, "one\n") }), "it is not there")

	setUpdate(t, true)
	assert.True(t, IsUpdating())
	Check(t, path, []byte("one\n"))

	setUpdate(t, false)
	Check(t, path, "one\n")
	assert.True(t, fails(t, func(t testing.TB) { Check(t, path, "two\n") }))
}

func TestAPartOfAPageIsWrittenThenCompared(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	const before = "a\n<!-- begin x -->\n<!-- end -->\nb\n<!-- begin y -->\nold\n<!-- end -->\n"
	require.NoError(t, os.WriteFile(page, []byte(before), 0o600))
	setUpdate(t, false)
	assert.True(t, fails(t, func(t testing.TB) { CheckPart(t, page, "y", "new\n") }))
	assert.True(t, fails(t, func(t testing.TB) { CheckPart(t, page, "z", "new\n") }), "there is no such part")

	setUpdate(t, true)
	CheckPart(t, page, "y", "new\n")
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Equal(t, "a\n<!-- begin x -->\n<!-- end -->\nb\n<!-- begin y -->\nnew\n<!-- end -->\n", string(text))

	setUpdate(t, false)
	CheckPart(t, page, "y", "new\n")
	CheckPart(t, page, "x", "")
}

func TestABlockIsInAFence(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(page, []byte("<!-- begin x -->\n```\nold\n```\n<!-- end -->\n"), 0o600))
	setUpdate(t, false)
	CheckBlock(t, page, "x", "old\n")
	WriteBlock(t, page, "x", "new\n")
	CheckBlock(t, page, "x", "old\n")

	setUpdate(t, true)
	WriteBlock(t, page, "x", "new\n")
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Equal(t, "<!-- begin x -->\n```\nnew\n```\n<!-- end -->\n", string(text))
}

func TestATableIsComparedWithoutAgesAndWidths(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	const table = "edge   Ready  19s (x2 over 20s)   all is well\n"
	require.NoError(t, os.WriteFile(page, []byte("<!-- begin x -->\n```\n"+table+"```\n<!-- end -->\n"), 0o600))
	setUpdate(t, false)
	CheckTable(t, page, "x", "edge  Ready  9s    all is well\n")
	assert.True(t, fails(t, func(t testing.TB) { CheckTable(t, page, "x", "edge  Refused  9s  all is well\n") }))
	assert.NotEqual(t, ageless("edge  19 nodes\n"), ageless("edge  9 nodes\n"))

	setUpdate(t, true)
	CheckTable(t, page, "x", "edge  Ready  9s\n")
	setUpdate(t, false)
	CheckBlock(t, page, "x", "edge  Ready  9s\n")
}
