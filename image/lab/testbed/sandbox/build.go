package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build compiles a program of this repository, statically, into dir and returns its path. module is
// the directory with the go.mod and pkg the package, both from the top; the program's name is the last
// part of pkg, or of module when pkg is ".".
func Build(ctx context.Context, module, pkg, dir string) (string, error) {
	top, err := RepositoryRoot()
	if err != nil {
		return "", err
	}
	name := filepath.Base(pkg)
	if pkg == "." {
		name = filepath.Base(module)
	}
	out := filepath.Join(dir, name)
	if name == "systemctl" {
		out = filepath.Join(dir, "bed-systemctl") // by its own name it would be the client
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, pkg)
	cmd.Dir = filepath.Join(top, module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", pkg, err, text)
	}
	return out, nil
}

// RepositoryRoot is the directory of this repository, found upwards from the working directory.
func RepositoryRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find repository: %w", err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "assets", "recipe.yaml")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("find repository: assets/recipe.yaml is in no directory above the working directory")
}
