package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/gobuild"
	"firstlight.dev/firstlight/image/recipe"
)

// EarlierVersion is the oldest Kubernetes that a guest is tried with, in its last patch release.
const EarlierVersion = "v1.33.13"

// Build compiles a program of this repository, statically, into dir and returns its path. module is
// the directory with the go.mod and pkg the package, both from the top; the program's name is the last
// part of pkg, or of module when pkg is ".".
func Build(ctx context.Context, module, pkg, dir string) (string, error) {
	top, err := bench.FindTop()
	if err != nil {
		return "", err
	}

	name := filepath.Base(pkg)
	if pkg == "." {
		name = filepath.Base(module)
	}

	out := filepath.Join(dir, name)
	if name == "systemctl" {
		out = filepath.Join(dir, "sandbox-systemctl") // by its own name it would be the client
	}

	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, pkg)
	cmd.Dir = filepath.Join(top, module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", pkg, err, text)
	}

	return out, nil
}

// BuildProgram compiles one of the recipe's programs, with the recipe's flags, and keeps it in
// $FIRSTLIGHT_CACHE; it returns the path.
func BuildProgram(ctx context.Context, name string) (string, error) {
	top, err := bench.FindTop()
	if err != nil {
		return "", err
	}

	r, err := recipe.ReadFile(filepath.Join(top, "assets", "recipe.yaml"))
	if err != nil {
		return "", err
	}

	p := r.Program(name)
	if p == nil {
		return "", fmt.Errorf("compile %s: it is not among the recipe's programs", name)
	}
	return buildProgram(ctx, p)
}

// BuildEarlier compiles the control plane of EarlierVersion, as one program, and keeps it as BuildProgram does.
func BuildEarlier(ctx context.Context) (string, error) {
	return buildProgram(ctx, &recipe.Program{
		Name: "earlier", Module: "image/lab/testbed/sandbox/earlier", Package: ".",
		LDFlags: []string{
			"-X=k8s.io/component-base/version.gitVersion=" + EarlierVersion,
			"-X=k8s.io/component-base/version.gitMajor=1",
			"-X=k8s.io/component-base/version.gitMinor=33",
		},
	})
}

func buildProgram(ctx context.Context, p *recipe.Program) (string, error) {
	top, err := bench.FindTop()
	if err != nil {
		return "", err
	}

	toolchain, err := gobuild.ToolchainVersion(ctx, top)
	if err != nil {
		return "", err
	}

	builder := gobuild.Builder{Top: top, Toolchain: toolchain, Log: os.Stderr}
	key, err := builder.Key(p)
	if err != nil {
		return "", err
	}

	store, err := cache.DefaultStore()
	if err != nil {
		return "", err
	}

	item, err := store.Do("program for tests", key, func(path string) error { return builder.Build(ctx, p, path) })
	return item.Path, err
}
