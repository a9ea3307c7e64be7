package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"firstlight.dev/firstlight/assets/bench"
)

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
