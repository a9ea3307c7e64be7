package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryPageIsReadByEachOfItsNames: as messages name pages, and as pages name each other.
func TestEveryPageIsReadByEachOfItsNames(t *testing.T) {
	assert.Contains(t, Pages(), "metal")
	assert.Greater(t, len(Pages()), 20)
	for _, name := range Pages() {
		want, err := Read(name)
		require.NoError(t, err)
		assert.NotEmpty(t, want, name)
		for _, form := range []string{name + ".md", "docs/" + name + ".md", "./docs/" + name} {
			got, err := Read(form)
			require.NoError(t, err)
			assert.Equal(t, want, got, form)
		}
	}

	for _, form := range []string{"decisions/0023", "docs/decisions/0023-applied-hosts-are-paused-first.md"} {
		text, err := Read(form)
		require.NoError(t, err)
		assert.Contains(t, string(text), "# 23. ")
	}
	for _, form := range []string{"nonsense", "", "../docs", "/etc/passwd", "decisions/9999", "decisions/*"} {
		_, err := Read(form)
		assert.ErrorContains(t, err, "there are CHANGELOG, ", form)
	}
}

// TestPagesThatCodeNamesAreThere: whoever reads a message finds its page.
func TestPagesThatCodeNamesAreThere(t *testing.T) {
	seen := 0
	page := regexp.MustCompile(`docs/[\w/-]+\.md`)
	for _, room := range []string{"assets", "cmd", "daemon", "image", "pxe"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("..", room), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			for _, named := range page.FindAllString(string(text), -1) {
				seen++
				if named == "docs/PAGE.md" || named == "docs/garbage-collection.md" { // any page; one of containerd's
					continue
				}
				_, err := Read(named)
				assert.NoError(t, err, name)
			}
			return nil
		}))
	}
	assert.Greater(t, seen, 50)
}
