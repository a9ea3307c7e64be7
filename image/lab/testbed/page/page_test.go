package page

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestABlockIsWrittenAndCompared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	const text = "a\n<!-- begin x -->\n```\nold\n```\n<!-- end -->\nb\n<!-- begin y -->\n```\n```\n<!-- end -->\n"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	Check(t, path, "x", "old\n", false)
	Check(t, path, "x", "new\n", true)
	Check(t, path, "x", "new\n", false)
	Check(t, path, "y", "", false)

	for _, block := range []string{"z", "old"} {
		_, _, _, err := cut(text, block)
		assert.Error(t, err, block)
	}
	_, _, _, err := cut("<!-- begin x -->\n```\nno end", "x")
	assert.Error(t, err)

	_, _, _, err = cut(text, "two words")
	assert.ErrorContains(t, err, "run the test with -update:\n<!-- begin two words -->\n```\n```\n<!-- end -->")
}

func TestATableIsComparedWithoutAgesAndWidths(t *testing.T) {
	assert.Equal(t, ageless("edge   Ready  19s (x2 over 20s)   all is well\n"), ageless("edge  Ready  9s    all is well\n"))
	assert.NotEqual(t, ageless("edge  Ready  9s  all is well\n"), ageless("edge  Refused  9s  all is well\n"))
	assert.NotEqual(t, ageless("edge  19 nodes\n"), ageless("edge  9 nodes\n"))
}
