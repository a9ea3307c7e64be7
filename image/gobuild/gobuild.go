// Package gobuild compiles the Go programs of a recipe: static, stripped, for
// linux/amd64, with the same bytes wherever they are built.
package gobuild

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	"sync"
	"time"

	"golang.org/x/mod/modfile"

	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/recipe"
)

// Builder compiles programs of one repository.
type Builder struct {
	Top       string // of the repository
	Toolchain string // go1.26.8; the go command fetches it if it is another
	Log       io.Writer

	Report func(State)   // nil if nobody wants to know how far Build is
	Every  time.Duration // how often it is called; a second when 0
}

// moduleDir is where a program's go.mod is.
func (b Builder) moduleDir(p *recipe.Program) string {
	return filepath.Join(b.Top, filepath.FromSlash(p.Module))
}

// Key digests everything a program is built from: toolchain, flags, mends, and all sources of
// its module and of modules it replaces by directories of this repository, but for those of
// other programs: a main package cannot be imported (cmd/go/internal/load). Modules from
// elsewhere are covered by go.sum.
func (b Builder) Key(p *recipe.Program) (string, error) {
	dir, err := filepath.Abs(b.moduleDir(p))
	if err != nil {
		return "", fmt.Errorf("read program %s: %w", p.Name, err)
	}

	sources, err := sourceDigest(dir, filepath.Join(dir, p.Package), map[string]bool{})
	if err != nil {
		return "", fmt.Errorf("read program %s: %w", p.Name, err)
	}

	parts := []string{"go program 2", b.Toolchain, p.Module, p.Package, strings.Join(
		p.LDFlags, "\x00",
	), strings.Join(p.Tags, ","), sources}
	if len(p.Patches) > 0 {
		parts = append(parts, patchKey(p.Patches))
	}

	return cache.Key(parts...), nil
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
			if path != dir && (isSkipped(dir, path) || exists(filepath.Join(path, "go.mod"))) {
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

// isSkipped says which directories never go into a program: outputs at the top, hidden
// ones, documentation and trees copied verbatim.
func isSkipped(top, path string) bool {
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
	flags := []string{"-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags=" + strings.Join(
		append([]string{"-s", "-w", "-buildid="}, p.LDFlags...), " ",
	)}
	if len(p.Tags) > 0 {
		flags = append(flags, "-tags="+strings.Join(p.Tags, ","))
	}

	if len(p.Patches) > 0 {
		dir, err := os.MkdirTemp("", "firstlight-mend-")
		if err != nil {
			return fmt.Errorf("build program %s: %w", p.Name, err)
		}
		defer os.RemoveAll(dir)

		overlay, err := b.writeOverlay(ctx, p, dir)
		if err != nil {
			return fmt.Errorf("build program %s: %w", p.Name, err)
		}

		flags = append(flags, "-overlay="+overlay)
	}

	if err := b.compile(ctx, p, flags, out); err != nil {
		return fmt.Errorf("build program %s: %w", p.Name, err)
	}

	return nil
}

// compile runs go build, and reports how far it is if somebody wants to know.
func (b Builder) compile(ctx context.Context, p *recipe.Program, flags []string, out string) error {
	build := slices.Concat([]string{"build", "-o", out}, flags, []string{p.Package})
	if b.Report == nil {
		_, err := b.goCommand(ctx, p, build...)
		return err
	}

	var counted counter
	silent := b
	silent.Log = io.Discard
	list := slices.Concat(
		[]string{"list", "-deps", "-f", "{{if or .Stale (not .DepOnly)}}{{.ImportPath}}{{end}}"}, flags,
		[]string{p.Package},
	)
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		b.watch(
			watching, &counted, func(ctx context.Context) (string, error) { return silent.goCommand(ctx, p, list...) },
		)
	})
	_, err := b.run(ctx, p, &counted, slices.Insert(build, 1, "-v")...)
	stop()
	watch.Wait()
	if err == nil {
		b.Report(counted.state())
	}

	return err
}

// goCommand runs go where the program's go.mod is, free of the caller's settings that
// would change the result.
func (b Builder) goCommand(ctx context.Context, p *recipe.Program, args ...string) (string, error) {
	return b.run(ctx, p, nil, args...)
}

// run is goCommand with a counter of packages, or without.
func (b Builder) run(ctx context.Context, p *recipe.Program, counted *counter, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.moduleDir(p)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOAMD64=v1", "GOFLAGS=", "GOWORK=off",
		"GOEXPERIMENT=", "GODEBUG=", "GOTOOLCHAIN="+b.Toolchain)
	var out, complaints strings.Builder
	cmd.Stdout, cmd.Stderr = &out, io.MultiWriter(&complaints, b.Log)
	if counted != nil {
		counted.complaints = cmd.Stderr
		cmd.Stderr = counted
	}

	err := cmd.Run()
	if counted != nil {
		err = errors.Join(err, counted.Close())
	}

	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", args[0], err, lastLines(complaints.String(), 6))
	}

	return out.String(), nil
}

// ToolchainVersion is the version of the go command that a directory's go.mod gets.
func ToolchainVersion(ctx context.Context, dir string) (string, error) {
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
