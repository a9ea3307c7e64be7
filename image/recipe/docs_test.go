package recipe_test

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/recipe"
)

// Every field is explained in docs/image.md, in the paragraph of its top-level part.
func TestEveryFieldIsInTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../docs/image.md")
	require.NoError(t, err)
	_, fields, found := strings.Cut(string(text), "## Every field\n")
	require.True(t, found)
	parts := map[string]string{} // top-level part to its paragraphs
	part := ""
	for paragraph := range strings.SplitSeq(fields, "\n\n") {
		paragraph = strings.TrimSpace(paragraph)
		for _, name := range []string{"debian", "programs[]", "omissions[]", "roots[]", "images[]", "artifacts[]", "stick"} {
			if strings.HasPrefix(paragraph, "`"+name+"`") {
				part = name
			}
		}
		parts[part] += paragraph + "\n"
	}
	all := listFields()
	require.Greater(t, len(all), 40)
	for _, field := range all {
		top, rest, nested := strings.Cut(field, ".")
		if !nested {
			assert.True(t, parts[field] != "" || parts[field+"[]"] != "", "docs/image.md has no part %s", field)
			continue
		}
		leaf := rest[strings.LastIndex(rest, ".")+1:]
		said := strings.Contains(parts[top], "`"+leaf+"`") || strings.Contains(parts[top], "`"+leaf+"[]`")
		assert.True(t, said, "docs/image.md, part %s, does not explain %s", top, field)
	}
}

// listFields lists every field a recipe may have, as dotted paths with [] for lists, sorted.
func listFields() []string {
	var all []string
	var walk func(prefix string, t reflect.Type)
	walk = func(prefix string, t reflect.Type) {
		for t.Kind() == reflect.Slice {
			prefix, t = prefix+"[]", t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return
		}
		for i := range t.NumField() {
			if tag := t.Field(i).Tag.Get("yaml"); tag != "" {
				path := strings.TrimPrefix(prefix+"."+tag, ".")
				all = append(all, path)
				walk(path, t.Field(i).Type)
			}
		}
	}
	walk("", reflect.TypeOf(recipe.Recipe{}))
	slices.Sort(all)
	return all
}
