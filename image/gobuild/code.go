package gobuild

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/recipe"
)

// Code is the packages that one package of this repository reaches, by import path; those of Go itself are left out.
type Code map[string]goPackage

// goPackage is what the go command says of a package.
type goPackage struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	EmbedFiles []string
	Imports    []string
	Standard   bool
	Module     *module
}

// ReadCode reads which packages the one in dir, from the top of the repository, reaches.
func (b Builder) ReadCode(ctx context.Context, dir string) (Code, error) {
	const fields = "-json=ImportPath,Dir,GoFiles,EmbedFiles,Imports,Standard,Module"
	out, err := b.goCommand(ctx, &recipe.Program{}, "list", "-mod=readonly", "-deps", fields, "./"+dir)
	if err != nil {
		return nil, fmt.Errorf("read the builder's code: %w", err)
	}

	code := Code{}
	for decoder := json.NewDecoder(strings.NewReader(out)); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return code, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the builder's code: %w", err)
		}
		if !p.Standard {
			code[p.ImportPath] = p
		}
	}
}

// Digest digests the code that packages of this repository, directories from its top, are and import: the content
// of its own files, whatever their names are, and the versions of modules from elsewhere.
func (c Code) Digest(dirs ...string) (string, error) {
	reached := map[string]bool{}
	for _, dir := range dirs {
		path := c.importPath(dir)
		if path == "" {
			return "", fmt.Errorf("read the builder's code: no package in %s makes any part", dir)
		}
		c.reach(path, reached)
	}

	var parts []string
	for path := range reached {
		p := c[path]
		if !p.Module.Main {
			m := p.Module.sourceModule()
			parts = append(parts, m.Path+"@"+m.Version)
			continue
		}
		for _, name := range slices.Concat(p.GoFiles, p.EmbedFiles) {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				return "", fmt.Errorf("read the builder's code: %w", err)
			}
			parts = append(parts, string(text))
		}
	}

	slices.Sort(parts)
	return cache.Key(slices.Compact(parts)...), nil
}

// importPath finds the package in a directory, from the top of the repository.
func (c Code) importPath(dir string) string {
	for path, p := range c {
		if p.Module.Main && path == p.Module.Path+"/"+dir {
			return path
		}
	}
	return ""
}

func (c Code) reach(path string, reached map[string]bool) {
	p, ok := c[path]
	if !ok || reached[path] {
		return
	}

	reached[path] = true
	for _, imported := range p.Imports {
		c.reach(imported, reached)
	}
}
