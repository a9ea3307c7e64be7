package gobuild

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"firstlight.dev/firstlight/image/lock"
	"firstlight.dev/firstlight/image/recipe"
)

// module is what the go command says of one.
type module struct {
	Path, Version string // Version is empty for a directory of this repository
	Sum           string
	Dir, GoMod    string // where its files lie
	Main          bool
	Replace       *module
}

// sourceModule is the module whose files are compiled: a go.mod may replace one by another.
func (m module) sourceModule() module {
	if m.Replace != nil {
		return *m.Replace
	}
	return m
}

// Modules lists the modules whose packages a program contains, sorted by path. The program is seen as it is compiled,
// with its patches: they may decide what it imports.
func (b Builder) Modules(ctx context.Context, p *recipe.Program) ([]lock.Module, error) {
	args := []string{"list", "-mod=readonly", "-deps", "-json=Module"}
	if len(p.Tags) > 0 {
		args = append(args, "-tags="+strings.Join(p.Tags, ","))
	}

	if len(p.Patches) > 0 {
		dir, err := os.MkdirTemp("", "firstlight-mend-")
		if err != nil {
			return nil, fmt.Errorf("list modules of program %s: %w", p.Name, err)
		}
		defer os.RemoveAll(dir)

		overlay, err := b.writeOverlay(ctx, p, dir)
		if err != nil {
			return nil, fmt.Errorf("list modules of program %s: %w", p.Name, err)
		}

		args = append(args, "-overlay="+overlay)
	}

	out, err := b.goCommand(ctx, p, append(args, p.Package)...)
	if err != nil {
		return nil, fmt.Errorf("list modules of program %s: %w", p.Name, err)
	}

	found := map[string]lock.Module{}
	decoder := json.NewDecoder(strings.NewReader(out))
	for {
		var entry struct{ Module *module }
		if err := decoder.Decode(&entry); err != nil {
			if errors.Is(err, io.EOF) {
				break
			}
			return nil, fmt.Errorf("list modules of program %s: %w", p.Name, err)
		}
		if entry.Module == nil || entry.Module.Main {
			continue
		}

		m := entry.Module.sourceModule()
		if strings.HasPrefix(m.Path, patchedDir) {
			if m, err = b.patchedSource(ctx, p, found, entry.Module.Path); err != nil {
				return nil, err
			}
		}
		if m.Version == "" {
			continue // a directory of this repository
		}

		dir := p.Module
		if dir == "" {
			dir = "."
		}

		found[m.Path] = lock.Module{Dir: dir, Path: m.Path, Version: m.Version, Sum: m.Sum}
	}

	var modules []lock.Module
	for _, m := range found {
		modules = append(modules, m)
	}

	slices.SortFunc(modules, func(a, b lock.Module) int { return strings.Compare(a.Path, b.Path) })
	return modules, nil
}

// patchedSource is the module that a patched one is made from, as go.mod selects it. One that was found is not looked
// for again.
func (b Builder) patchedSource(
	ctx context.Context, p *recipe.Program, found map[string]lock.Module, path string,
) (module, error) {
	if m, ok := found[path]; ok {
		return module{Path: m.Path, Version: m.Version, Sum: m.Sum}, nil
	}

	m, err := b.selectedModule(ctx, p, path)
	return m.sourceModule(), err
}

// BuiltModules lists the modules that a built program says it contains. It does not say the sum of a
// mended one.
func BuiltModules(program string) ([]lock.Module, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("read modules of program %s: %w", program, err)
	}

	var modules []lock.Module
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if name, ok := strings.CutPrefix(m.Path, patchedDir); ok {
			name, version, _ := strings.Cut(name, "@")
			modules = append(modules, lock.Module{Path: name, Version: version})
		} else if m.Sum != "" { // else a directory of this repository
			modules = append(modules, lock.Module{Path: m.Path, Version: m.Version, Sum: m.Sum})
		}
	}

	return modules, nil
}

// ModuleDir is where a module's sources lie; they are fetched if they are not there.
func (b Builder) ModuleDir(ctx context.Context, p *recipe.Program, m lock.Module) (string, error) {
	found, err := b.download(ctx, p, m.Path, m.Version)
	return found.Dir, err
}

// SelectedDir is where the sources of a module lie, in the version that the go.mod in module
// selects; they are fetched if they are not there.
func (b Builder) SelectedDir(ctx context.Context, module, path string) (string, error) {
	m, err := b.selectedModule(ctx, &recipe.Program{Module: module}, path)
	return m.sourceModule().Dir, err
}

// selectedModule is a module in the version that a program's go.mod selects, with its files.
func (b Builder) selectedModule(ctx context.Context, p *recipe.Program, path string) (module, error) {
	out, err := b.goCommand(ctx, p, "list", "-mod=readonly", "-m", "-json", path)
	if err != nil {
		return module{}, fmt.Errorf("find module %s: %w", path, err)
	}

	var m module
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		return module{}, fmt.Errorf("find module %s: %w", path, err)
	}
	if m.sourceModule().Version == "" {
		return m, nil
	}

	files, err := b.download(ctx, p, m.sourceModule().Path, m.sourceModule().Version)
	return module{Path: m.Path, Version: m.Version, Replace: &files}, err
}

// download makes sure that a module's files are there.
func (b Builder) download(ctx context.Context, p *recipe.Program, path, version string) (module, error) {
	out, err := b.goCommand(ctx, p, "mod", "download", "-json", path+"@"+version)
	if err != nil {
		return module{}, fmt.Errorf("find sources of %s: %w", path, err)
	}

	var m module
	if err := json.Unmarshal([]byte(out), &m); err != nil || m.Dir == "" {
		return module{}, fmt.Errorf("find sources of %s: go names no directory", path)
	}

	return m, nil
}
