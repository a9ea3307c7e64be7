package gobuild

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"

	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/recipe"
)

// patchedDir is where a program's go.mod finds its mended modules. The directory is in the overlay
// alone. A program keeps its name, which is therefore the same wherever it is built.
const patchedDir = "./mended/"

// patchKey digests what decides about the bytes of mended files.
func patchKey(mends []recipe.Patch) string {
	var parts []string
	for _, m := range mends {
		parts = append(parts, m.Module, m.File, m.Old, m.New)
	}
	return cache.Key(parts...)
}

// apply mends the text of a file; what is mended must be there exactly once.
func apply(m recipe.Patch, text string) (string, error) {
	if n := strings.Count(text, m.Old); n != 1 {
		return "", m.Errorf(
			"%s of module %s has the text to patch %d times and not once: %q", m.File, m.Module, n, m.Old,
		)
	}
	return strings.Replace(text, m.Old, m.New, 1), nil
}

// writeOverlay writes to dir what a program is mended with, and returns the file for go build -overlay.
//
// The go command lets nobody replace files of its module cache (go help build). So a mended module
// is replaced as a whole, by a line in the program's go.mod: by a directory that has the cache's
// files but for the mended ones.
func (b Builder) writeOverlay(ctx context.Context, p *recipe.Program, dir string) (string, error) {
	top, err := filepath.Abs(b.moduleDir(p))
	if err != nil {
		return "", err
	}

	goMod := filepath.Join(top, "go.mod")
	text, err := os.ReadFile(goMod)
	if err != nil {
		return "", err
	}

	mod, err := modfile.Parse(goMod, text, nil)
	if err != nil {
		return "", err
	}

	files := map[string]string{goMod: filepath.Join(dir, "go.mod")}
	for name, mends := range byModule(p.Patches) {
		m, err := b.selectedModule(ctx, p, name)
		if err != nil {
			return "", mends[0].Errorf("%v", err)
		}

		from := m.sourceModule()
		if from.Version == "" {
			return "", mends[0].Errorf(
				"module %s is a directory of this repository; change %s there", name, mends[0].File,
			)
		}

		at := patchedDir + from.Path + "@" + from.Version
		if err := mod.AddReplace(m.Path, m.Version, at, ""); err != nil {
			return "", err
		}
		if err := addModule(files, filepath.Join(top, at), from); err != nil {
			return "", err
		}
		if err := addPatched(files, filepath.Join(top, at), from, mends, dir); err != nil {
			return "", err
		}
	}

	if text, err = mod.Format(); err == nil {
		err = os.WriteFile(files[goMod], text, 0o644)
	}

	if err != nil {
		return "", err
	}
	if text, err = json.Marshal(map[string]any{"Replace": files}); err != nil {
		return "", err
	}

	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, text, 0o644)
}

func byModule(mends []recipe.Patch) map[string][]recipe.Patch {
	groups := map[string][]recipe.Patch{}
	for _, m := range mends {
		groups[m.Module] = append(groups[m.Module], m)
	}
	return groups
}

// addModule adds to an overlay the files of a module, seen at a directory that is not there.
func addModule(files map[string]string, at string, m module) error {
	err := filepath.WalkDir(m.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasSuffix(path, "_test.go") {
			return err
		}

		rel, err := filepath.Rel(m.Dir, path)
		files[filepath.Join(at, rel)] = path
		return err
	})
	files[filepath.Join(at, "go.mod")] = m.GoMod // an old module may have none in its directory
	return err
}

// addPatched writes the mended files of a module to dir, and adds them to an overlay.
func addPatched(files map[string]string, at string, m module, mends []recipe.Patch, dir string) error {
	texts := map[string]string{}
	for _, mend := range mends {
		if _, read := texts[mend.File]; !read {
			text, err := os.ReadFile(filepath.Join(m.Dir, filepath.FromSlash(mend.File)))
			if err != nil {
				return mend.Errorf("read file of module %s %s: %v", m.Path, m.Version, err)
			}
			texts[mend.File] = string(text)
		}

		text, err := apply(mend, texts[mend.File])
		if err != nil {
			return err
		}

		texts[mend.File] = text
	}

	for file, text := range texts {
		mended := filepath.Join(dir, cache.Key(m.Path, file)+path.Ext(file))
		if err := os.WriteFile(mended, []byte(text), 0o644); err != nil {
			return err
		}
		files[filepath.Join(at, filepath.FromSlash(file))] = mended
	}

	return nil
}
