package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// participle is a name of one word that ends as a participle does: "watched", "watching".
var participle = regexp.MustCompile(`^[A-Za-z][a-z]*(ed|ing)$`)

// notParticiples are words that only look like it, and names that others' interfaces ask for.
var notParticiples = map[string]string{
	"String":       "fmt.Stringer",
	"Compressed":   "v1.Layer of go-containerregistry",
	"Uncompressed": "v1.Layer of go-containerregistry",
	"Speed":        "a noun",
}

// ambiguous are names that one package at most gives to a type: with more, a reader must know where he is.
var ambiguous = []string{"World", "Record", "Site"}

// TestNames holds the rules of docs/words.md that can be read off a name.
func TestNames(t *testing.T) {
	types := map[string][]string{}
	seen := map[string]bool{}
	walk(t, func(p, rel string) error {
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range f.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				seen[d.Name.Name] = true
				if participle.MatchString(d.Name.Name) && notParticiples[d.Name.Name] == "" {
					t.Errorf("%s: a function is named by a verb or by the noun that it returns; %q is neither", rel, d.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if s, ok := s.(*ast.TypeSpec); ok {
						types[s.Name.Name] = append(types[s.Name.Name], rel)
					}
				}
			}
		}

		return nil
	})
	require.NotEmpty(t, types, "the tree was not read")
	for _, name := range ambiguous {
		assert.LessOrEqual(t, len(types[name]), 1, "types called %s: %v", name, types[name])
	}
	for name := range notParticiples {
		assert.True(t, seen[name], "no function is called %s any more", name)
	}
}
