// Package docs is the pages of this folder, for programs that show them where there is no network: messages name them.
package docs

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

//go:embed *.md decisions/*.md
var files embed.FS

// Pages are the names of all pages, such as metal; decisions are not among them.
func Pages() []string {
	all, _ := fs.Glob(files, "*.md") // the pattern is right
	for i, name := range all {
		all[i] = strings.TrimSuffix(name, ".md")
	}
	slices.Sort(all)
	return all
}

// Read returns a page by its name, in the forms in which messages and pages name one: metal, metal.md, docs/metal.md, or
// decisions/0023, which may be cut after its number.
func Read(name string) ([]byte, error) {
	name = strings.TrimSuffix(strings.TrimPrefix(path.Clean(name), "docs/"), ".md")
	text, err := files.ReadFile(name + ".md")
	if err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrInvalid) {
		return text, err
	}

	if number, ok := strings.CutPrefix(name, "decisions/"); ok && len(number) == 4 {
		if found, _ := fs.Glob(files, "decisions/"+number+"-*.md"); len(found) == 1 {
			return files.ReadFile(found[0])
		}
	}
	return nil, fmt.Errorf("there is no page %s; there are %s", name, strings.Join(Pages(), ", "))
}
