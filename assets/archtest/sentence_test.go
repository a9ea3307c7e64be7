package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// foreign are the texts of others, and of formats, that code looks for because there is nothing else to tell by; with
// whose they are.
var foreign = map[string]string{
	" with ":                        "an SPDX expression's exception",
	"can't be resumed by conductor": "Ironic's last_error",
	"firstlight ":                   "the vendor class of our own DHCP probes: a format, on the network",
	"go: downloading ":              "the go command",
	"server gave HTTP response to HTTPS client": "net/http",
	"unable to authenticate":                    "golang.org/x/crypto/ssh",
}

// ours are texts of our own that are read back all the same. It grows no more.
var ours = map[string]string{
	"did you mean": "a suggestion for a key of site.yaml, or the list of all keys",
	"one of ":      "the type of a list's items, for docs/site.md",
	"pod ":         "the kinds of questions that verify a cluster",
}

// matchers are the functions of package strings that look for a text.
var matchers = []string{
	"Contains", "ContainsAny", "Count", "Cut", "CutPrefix", "CutSuffix", "EqualFold", "HasPrefix", "HasSuffix", "Index", "LastIndex",
	"Split", "SplitN", "TrimPrefix", "TrimSuffix",
}

// words is what makes a text a sentence, or the beginning or the end of one.
var words = regexp.MustCompile(`[a-z]{2} |[a-z' ]+ [a-z]{2}`)

// sentences returns the texts with words that a file looks for in others.
func sentences(f *ast.File) (found []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 2 {
			return true
		}
		s, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains(matchers, s.Sel.Name) {
			return true
		}
		if of, _ := s.X.(*ast.Ident); of == nil || of.Name != "strings" && of.Name != "bytes" {
			return true
		}
		ast.Inspect(call.Args[1], func(n ast.Node) bool {
			l, ok := n.(*ast.BasicLit)
			if ok && l.Kind == token.STRING {
				if text, _ := strconv.Unquote(l.Value); words.MatchString(text) {
					found = append(found, text)
				}
			}
			return true
		})
		return true
	})
	return found
}

// A sentence for people is reworded any day. What code must know of it is in a field beside it: a reason, a node, a host.
func TestNoCodeReadsASentence(t *testing.T) {
	read := map[string]bool{}
	walk(t, func(p, rel string) error {
		if isTestCode(path.Dir(rel)) {
			return nil // the fixtures of tests may look at what people see
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, text := range sentences(f) {
			read[text] = true
			if foreign[text] == "" && ours[text] == "" {
				t.Errorf("%s looks for %q: carry what it says in a field, or say here whose text it is", rel, text)
			}
		}
		return nil
	})
	for _, list := range []map[string]string{foreign, ours} {
		for text := range list {
			assert.True(t, read[text], "nothing looks for %q any more", text)
		}
	}
}

func TestSentencesAreSeen(t *testing.T) {
	for text, want := range map[string][]string{
		`package p; var b = strings.Contains(s, "is not empty")`:                {"is not empty"},
		`package p; var b = strings.HasPrefix(s, "host ")`:                      {"host "},
		`package p; var b = strings.Contains(p.Sentence, "node "+label+":")`:    {"node "},
		`package p; var b = strings.HasPrefix(path, "/images/")`:                nil,
		`package p; var a, b, c = strings.Cut(line, ": ")`:                      nil,
		`package p; var b = strings.ReplaceAll(s, "no words", "of a sentence")`: nil,
		`package p; var b = plan.Contains(s, "is not empty")`:                   nil,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "p.go", text, 0)
		require.NoError(t, err)
		assert.Equal(t, want, sentences(f), text)
	}
}
