// Package pool keeps Debian packages as they are, with an index of them: for mmdebstrap here, and for a machine that
// will serve them as a repository.
package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"firstlight.dev/firstlight/image/debian"
)

// IndexName is the file with a stanza for every package of a pool.
const IndexName = "Packages"

// Make copies packages into a new directory, under the names that Debian gives them, with an index. files
// are the .debs by SHA256.
func Make(ctx context.Context, packages []debian.Package, files map[string]string, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make pool: %w", err)
	}

	stanzas := make([]string, len(packages))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for i, p := range packages {
		group.Go(func() error {
			control, err := exec.CommandContext(ctx, "dpkg-deb", "--field", files[p.SHA256]).Output()
			if err != nil {
				return fmt.Errorf("make pool: read %s %s: %w", p.Name, p.Version, err)
			}

			stanzas[i] = stanza(string(control), p)
			return copyFile(files[p.SHA256], filepath.Join(dir, fileName(p)))
		})
	}

	if err := group.Wait(); err != nil {
		return err
	}

	return os.WriteFile(filepath.Join(dir, IndexName), []byte(strings.Join(stanzas, "\n")), 0o644)
}

// fileName is a package's file: an epoch is no part of it (Debian Policy, 5.6.12).
func fileName(p debian.Package) string {
	version := p.Version
	if _, rest, epoch := strings.Cut(version, ":"); epoch {
		version = rest
	}
	return fmt.Sprintf("%s_%s_%s.deb", p.Name, version, p.Arch)
}

// stanza is a package's control file with what an index says besides.
func stanza(control string, p debian.Package) string {
	return fmt.Sprintf(
		"%s\nFilename: %s\nSize: %d\nSHA256: %s\n", strings.TrimRight(control, "\n"), fileName(p), p.Size, p.SHA256,
	)
}

// copyFile copies a file so that everybody may read it: mmdebstrap has a user of its own.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("make pool: %w", err)
	}
	defer in.Close()

	out, err := os.Create(to)
	if err != nil {
		return fmt.Errorf("make pool: %w", err)
	}

	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(0o644), out.Close())
}
