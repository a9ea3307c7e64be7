package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unwanted are the words of docs/words.md, second column of its rules for sentences, that are never right in a message.
// The others of that column are, in another sense.
var unwanted = map[string]*regexp.Regexp{
	"anew":          regexp.MustCompile(`(?i)\banew\b`),
	"mend":          regexp.MustCompile(`(?i)\bmend(s|ed|ing)?\b`),
	"not to be had": regexp.MustCompile(`(?i)\b(not|never) to be had\b`),
	"in vain":       regexp.MustCompile(`(?i)\bin vain\b`),
	"for ever":      regexp.MustCompile(`(?i)\bfor ever\b`),
	"by itself":     regexp.MustCompile(`(?i)\bby itself\b`),
	"goes on":       regexp.MustCompile(`(?i)\bgoes on\b`),
	"look at":       regexp.MustCompile(`(?i)\blooks? at\b`),
	"cut off":       regexp.MustCompile(`(?i)\bcut off\b`),
	"beside":        regexp.MustCompile(`(?i)\bbeside\b`),
	"lies in":       regexp.MustCompile(`(?i)\blies in\b`),
	"octet":         regexp.MustCompile(`(?i)\boctets\b`), // one alone is a mode of TFTP
}

// TestMessagesHaveTheWordsOfThePage: a string with a blank is a sentence that someone reads. What has none is a name.
// Programs from elsewhere, with what is built into them, are not rebuilt for a word.
func TestMessagesHaveTheWordsOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/words.md")
	require.NoError(t, err)
	_, rules, _ := strings.Cut(string(page), "## Rules for sentences")
	for word := range unwanted {
		assert.Regexp(t, `(?m)^\|[^|]+\|.*\b`+word+`\b`, rules, "docs/words.md allows it")
	}

	seen := 0
	for _, room := range []string{"assets", "cmd", "daemon", "image", "pxe"} {
		require.NoError(t, filepath.WalkDir("../../"+room, func(path string, _ os.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") ||
				strings.Contains(path, "/assets/build/") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				literal, ok := n.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					return true
				}
				text, err := strconv.Unquote(literal.Value)
				if err != nil || !strings.Contains(text, " ") {
					return true
				}
				seen++
				for word, form := range unwanted {
					assert.False(t, form.MatchString(text), "%s: %s; docs/words.md has another word", files.Position(literal.Pos()), word)
				}
				return true
			})
			return nil
		}))
	}
	assert.Greater(t, seen, 5000, "the tree was not read")
}
