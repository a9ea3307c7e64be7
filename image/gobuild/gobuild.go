// Package gobuild compiles the Go programs of a recipe: static, stripped, for
// linux/amd64, with the same bytes wherever they are built.
package gobuild

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"

	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/lock"
	"firstlight.dev/firstlight/image/recipe"
)

// Builder compiles programs of one repository.
type Builder struct {
	Top       string // of the repository
	Toolchain string // go1.26.8; the go command fetches it if it is another
	Log       io.Writer
}

// moduleDir is where a program's go.mod is.
func (b Builder) moduleDir(p *recipe.Program) string {
	return filepath.Join(b.Top, filepath.FromSlash(p.Module))
}

// Key digests everything a program is built from: toolchain, flags, and all sources of
// its module and of modules it replaces by directories of this repository, but for those of
// other programs: a main package cannot be imported (cmd/go/internal/load). Modules from
// elsewhere are covered by go.sum.
func (b Builder) Key(p *recipe.Program) (string, error) {
	dir, err := filepath.Abs(b.moduleDir(p))
	if err != nil {
		return "", fmt.Errorf("look at program %s: %w", p.Name, err)
	}
	sources, err := sourceDigest(dir, filepath.Join(dir, p.Package), map[string]bool{})
	if err != nil {
		return "", fmt.Errorf("look at program %s: %w", p.Name, err)
	}
	return cache.Key("go program 2", b.Toolchain, p.Module, p.Package, strings.Join(p.LDFlags, "\x00"), strings.Join(p.Tags, ","), sources), nil
}

// sourceDigest digests the files of a module that may end up in the program whose main
// package lies in own.
func sourceDigest(dir, own string, seen map[string]bool) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil || seen[dir] {
		return "", err
	}
	seen[dir] = true
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", err
	}
	h := sha256.New()
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != dir && (skipped(dir, path) || exists(filepath.Join(path, "go.mod"))) {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		if strings.HasSuffix(path, ".go") && filepath.Dir(path) != own && isMain(path) {
			return nil
		}
		digest, err := cache.FileDigest(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		fmt.Fprintf(h, "%s %s\n", digest, filepath.ToSlash(rel))
		return err
	})
	if err != nil {
		return "", err
	}
	file, err := modfile.ParseLax("go.mod", mod, nil)
	if err != nil {
		return "", err
	}
	for _, r := range file.Replace {
		if r.New.Version != "" {
			continue
		}
		digest, err := sourceDigest(filepath.Join(dir, r.New.Path), own, seen)
		if err != nil {
			return "", fmt.Errorf("replaced module %s: %w", r.Old.Path, err)
		}
		fmt.Fprintf(h, "%s %s\n", digest, r.Old.Path)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// isMain tells whether a Go file belongs to a main package. One that cannot be read as Go does
// not, as far as anybody knows.
func isMain(path string) bool {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly)
	return err == nil && f.Name.Name == "main"
}

// skipped says which directories never go into a program: outputs at the top, hidden
// ones, documentation and trees copied verbatim.
func skipped(top, path string) bool {
	name := filepath.Base(path)
	if strings.HasPrefix(name, ".") || name == "testdata" {
		return true
	}
	rel, err := filepath.Rel(top, path)
	return err == nil && slices.Contains([]string{"bin", "build", "docs", "overlays", "scripts"}, rel)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Build compiles a program to out.
func (b Builder) Build(ctx context.Context, p *recipe.Program, out string) error {
	args := []string{"build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-o", out, "-ldflags=" + strings.Join(append([]string{"-s", "-w", "-buildid="}, p.LDFlags...), " ")}
	if len(p.Tags) > 0 {
		args = append(args, "-tags="+strings.Join(p.Tags, ","))
	}
	if _, err := b.goCommand(ctx, p, append(args, p.Package)...); err != nil {
		return fmt.Errorf("build program %s: %w", p.Name, err)
	}
	return nil
}

// Modules lists the modules whose packages a program contains, sorted by path.
func (b Builder) Modules(ctx context.Context, p *recipe.Program) ([]lock.Module, error) {
	args := []string{"list", "-mod=readonly", "-deps", "-json=Module"}
	if len(p.Tags) > 0 {
		args = append(args, "-tags="+strings.Join(p.Tags, ","))
	}
	out, err := b.goCommand(ctx, p, append(args, p.Package)...)
	if err != nil {
		return nil, fmt.Errorf("list modules of program %s: %w", p.Name, err)
	}
	type module struct {
		Path, Version, Sum string
		Main               bool
		Replace            *module
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
		m := entry.Module
		if m == nil || m.Main {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
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

// Contents lists the modules that a built program says it contains.
func Contents(program string) ([]lock.Module, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("read modules of program %s: %w", program, err)
	}
	var modules []lock.Module
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if m.Sum != "" { // else a directory of this repository
			modules = append(modules, lock.Module{Path: m.Path, Version: m.Version, Sum: m.Sum})
		}
	}
	return modules, nil
}

// ModuleDir is where a module's sources lie; they are fetched if they are not there.
func (b Builder) ModuleDir(ctx context.Context, p *recipe.Program, m lock.Module) (string, error) {
	out, err := b.goCommand(ctx, p, "mod", "download", "-json", m.Path+"@"+m.Version)
	if err != nil {
		return "", fmt.Errorf("find sources of %s: %w", m.Path, err)
	}
	var found struct{ Dir string }
	if err := json.Unmarshal([]byte(out), &found); err != nil || found.Dir == "" {
		return "", fmt.Errorf("find sources of %s: go names no directory", m.Path)
	}
	return found.Dir, nil
}

// SelectedDir is where the sources of a module lie, in the version that the go.mod in module
// selects; they are fetched if they are not there.
func (b Builder) SelectedDir(ctx context.Context, module, path string) (string, error) {
	p := &recipe.Program{Module: module}
	out, err := b.goCommand(ctx, p, "list", "-mod=readonly", "-m", "-json", path)
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", path, err)
	}
	var m lock.Module
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		return "", fmt.Errorf("find module %s: %w", path, err)
	}
	return b.ModuleDir(ctx, p, m)
}

// goCommand runs go where the program's go.mod is, free of the caller's settings that
// would change the result.
func (b Builder) goCommand(ctx context.Context, p *recipe.Program, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.moduleDir(p)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOAMD64=v1", "GOFLAGS=", "GOWORK=off",
		"GOEXPERIMENT=", "GODEBUG=", "GOTOOLCHAIN="+b.Toolchain)
	var out, complaints strings.Builder
	cmd.Stdout, cmd.Stderr = &out, io.MultiWriter(&complaints, b.Log)
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w: %s", args[0], err, lastLines(complaints.String(), 6))
	}
	return out.String(), nil
}

// Toolchain is the version of the go command that a directory's go.mod gets.
func Toolchain(ctx context.Context, dir string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ask go for its version: %w", err)
	}
	return strings.Fields(strings.TrimSpace(string(out)))[0], nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}
