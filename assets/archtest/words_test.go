package archtest

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// abandoned are words that once named what docs/words.md calls otherwise. Each is split, as this file is read too.
var abandoned = []string{"be" + "d", "de" + "sk", "ri" + "g"}

// TestAbandonedWordsAreGone reads all sources: names, comments and texts.
func TestAbandonedWordsAreGone(t *testing.T) {
	page, err := os.ReadFile("../../docs/words.md")
	require.NoError(t, err)
	for _, word := range abandoned {
		assert.Regexp(t, `(?m)^\|.*\b`+word+`\b[^|]*\|$`, string(page), "docs/words.md has no other word for it")
	}

	form := regexp.MustCompile(`(?i)\b(new)?(` + strings.Join(abandoned, "|") + `)s?\b`)
	read := 0
	walkWithTests(t, func(p, rel string) error {
		text, err := os.ReadFile(p)
		read++
		if word := form.Find(text); word != nil {
			t.Errorf("%s: %q; docs/words.md has another word", rel, word)
		}
		return err
	})
	require.NotZero(t, read, "the tree was not read")
}
