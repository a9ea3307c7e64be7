package plan

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The table of reasons in docs/addons.md has each reason, and no other.
func TestEveryReasonIsExplained(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "verdict.go", nil, 0)
	require.NoError(t, err)
	var want []string
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if ok && len(v.Values) == 1 && strings.HasPrefix(v.Names[0].Name, "Reason") {
			text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			want = append(want, text)
		}
		return true
	})
	page, err := os.ReadFile("../../../../docs/addons.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(page), "| reason |")
	table, _, _ = strings.Cut(table, "\n\n")
	var have []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)`").FindAllStringSubmatch(table, -1) {
		have = append(have, m[1])
	}
	slices.Sort(want)
	slices.Sort(have)
	assert.Equal(t, want, have)
}
