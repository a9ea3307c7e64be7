package assets_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	testIsDefined = regexp.MustCompile(`(?m)^func ((?:Test|test|Fuzz)[A-Z]\w*)\(`)
	testIsNamed   = regexp.MustCompile("`((?:Test|test|Fuzz)[A-Z]\\w*)(…?)`")
)

// TestDocsNameTestsThatAreThere holds every table of faults to the tests that it names; a name
// that ends in … stands for all that begin so.
func TestDocsNameTestsThatAreThere(t *testing.T) {
	var defined []string
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == "build" && filepath.Dir(path) == ".." || strings.HasPrefix(d.Name(), ".") && d.Name() != "..") {
			if err == nil {
				err = fs.SkipDir
			}
			return err
		}
		if d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range testIsDefined.FindAllSubmatch(text, -1) {
			defined = append(defined, string(m[1]))
		}
		return err
	}))
	require.NotEmpty(t, defined)
	pages, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range testIsNamed.FindAllStringSubmatch(string(text), -1) {
			there := slices.ContainsFunc(defined, func(name string) bool { return name == m[1] || m[2] != "" && strings.HasPrefix(name, m[1]) })
			assert.True(t, there, "%s names %s", filepath.Base(page), m[1])
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)\)`)

// A page that was moved or renamed leaves no link to where it was.
func TestLinksOfPagesLeadSomewhere(t *testing.T) {
	pages := []string{"../README.md"}
	for _, pattern := range []string{"../docs/*.md", "../docs/decisions/*.md"} {
		more, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, more)
		pages = append(pages, more...)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			_, err := os.Stat(filepath.Join(filepath.Dir(page), m[1]))
			assert.NoError(t, err, "%s links to %s", page, m[1])
		}
	}
}
