package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Unpack unpacks packages side by side into a new directory; no script of theirs runs.
func Unpack(ctx context.Context, packages []Package, files map[string]string, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("unpack packages: %w", err)
	}
	for _, p := range SortBaseFirst(packages) {
		if _, err := runCommand(ctx, nil, "dpkg-deb", "--extract", files[p.SHA256], dir); err != nil {
			return fmt.Errorf("unpack %s %s: %w", p.Name, p.Version, err)
		}
	}
	return nil
}

// SortBaseFirst puts base-files first: it brings the links /bin, /lib ... into /usr.
func SortBaseFirst(packages []Package) []Package {
	rank := func(p Package) int {
		if p.Name == "base-files" {
			return 0
		}
		return 1
	}
	ordered := slices.Clone(packages)
	slices.SortStableFunc(ordered, func(a, b Package) int { return rank(a) - rank(b) })
	return ordered
}

// IsExcluded says whether dpkg's path patterns keep a file out: a pattern's * also
// matches slashes, and what an include pattern names is kept.
func IsExcluded(path string, exclude, include []string) bool {
	matches := func(patterns []string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return matchGlob(p, path) })
	}
	return matches(exclude) && !matches(include)
}

// matchGlob matches * with any text and ? with any character.
func matchGlob(pattern, text string) bool {
	for pattern != "" {
		switch pattern[0] {
		case '*':
			for i := 0; i <= len(text); i++ {
				if matchGlob(pattern[1:], text[i:]) {
					return true
				}
			}
			return false
		case '?':
			if text == "" {
				return false
			}
		default:
			if text == "" || text[0] != pattern[0] {
				return false
			}
		}
		pattern, text = pattern[1:], text[1:]
	}
	return text == ""
}

// DataTar writes the files of a .deb as an uncompressed tar archive to out.
func DataTar(ctx context.Context, deb, out string) error {
	f, err := os.Create(out)
	if err != nil {
		return fmt.Errorf("unpack %s: %w", deb, err)
	}

	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	cmd.Stdout = f
	if err := errors.Join(cmd.Run(), f.Close()); err != nil {
		return fmt.Errorf("unpack %s: dpkg-deb: %w", deb, err)
	}

	return nil
}

// ToolCommand is the command line prefix that runs a program of an unpacked tree through the
// tree's own loader and libraries, so that it is the same program on every host.
func ToolCommand(dir, program string) []string {
	return []string{
		filepath.Join(dir, "usr/lib64/ld-linux-x86-64.so.2"),
		"--library-path", filepath.Join(dir, "usr/lib/x86_64-linux-gnu"),
		filepath.Join(dir, "usr", program),
	}
}

// ParseInstalled reads which packages a tree's dpkg status lists: name to version.
func ParseInstalled(status []byte) map[string]string {
	installed := map[string]string{}
	name := ""
	for line := range strings.Lines(string(status)) {
		line = strings.TrimRight(line, "\n")
		if value, ok := strings.CutPrefix(line, "Package: "); ok {
			name = value
		}
		if value, ok := strings.CutPrefix(line, "Version: "); ok {
			installed[name] = value
		}
	}

	return installed
}
