package debian

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// Bootstrap is an installed tree to be made by mmdebstrap.
type Bootstrap struct {
	Suite    string
	Packages []Package
	Files    map[string]string // .deb by SHA256
	Exclude  []string          // dpkg path patterns
	Include  []string
	Hooks    []string // shell scripts run inside the tree
	Epoch    int64    // no file is younger
	Log      io.Writer
}

// Run writes the tree as a tar archive to out. No root is needed where this user may
// make user namespaces and has subordinate ids.
func (b Bootstrap) Run(ctx context.Context, out string) error {
	dir, err := os.MkdirTemp("", "firstlight-root-") // in /tmp: the ids of a user namespace must reach it
	if err != nil {
		return fmt.Errorf("make root: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return fmt.Errorf("make root: %w", err)
	}
	if err := b.makeRepository(ctx, dir); err != nil {
		return err
	}
	mode := "unshare"
	if os.Getuid() == 0 {
		mode = "root"
	}
	var names []string
	for _, p := range b.Packages {
		names = append(names, p.Name)
	}
	result := filepath.Join(dir, "root.tar")
	args := []string{
		"--mode=" + mode, "--variant=essential", "--format=tar", "--architectures=amd64",
		"--include=" + strings.Join(names, ","),
		`--aptopt=APT::Install-Recommends "false"`,
		`--aptopt=Acquire::Languages "none"`,
		`--dpkgopt=force-confdef`,
	}
	for _, pattern := range b.Exclude {
		args = append(args, "--dpkgopt=path-exclude="+pattern)
	}
	for _, pattern := range b.Include {
		args = append(args, "--dpkgopt=path-include="+pattern)
	}
	for i, hook := range b.Hooks {
		script, err := os.ReadFile(hook)
		if err != nil {
			return fmt.Errorf("make root: read hook: %w", err)
		}
		copied := filepath.Join(dir, fmt.Sprintf("hook-%d", i))
		if err := os.WriteFile(copied, script, 0o644); err != nil {
			return fmt.Errorf("make root: %w", err)
		}
		args = append(args, `--customize-hook=chroot "$1" /bin/sh -eu < `+copied)
	}
	args = append(args, b.Suite, "-", "deb [trusted=yes] copy:"+dir+"/repository ./")
	f, err := os.Create(out)
	if err != nil {
		return fmt.Errorf("make root: %w", err)
	}
	var complaints strings.Builder
	cmd := exec.CommandContext(ctx, "mmdebstrap", args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + dir, "LC_ALL=C.UTF-8", "TZ=UTC", "TMPDIR=/tmp", "SOURCE_DATE_EPOCH=" + strconv.FormatInt(b.Epoch, 10)}
	cmd.Stdout, cmd.Stderr = f, io.MultiWriter(&complaints, b.Log)
	// It removes its tree, whose files have owners that are not ours, when it is asked to end.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	if err := errors.Join(cmd.Run(), f.Close()); err != nil {
		return fmt.Errorf("make root %s: mmdebstrap: %w: %s", result, err, tail(complaints.String()))
	}
	return nil
}

// makeRepository makes a directory that apt reads as an archive with exactly these packages.
func (b Bootstrap) makeRepository(ctx context.Context, dir string) error {
	pool := filepath.Join(dir, "repository")
	if err := os.Mkdir(pool, 0o755); err != nil {
		return fmt.Errorf("make repository: %w", err)
	}
	stanzas := make([]string, len(b.Packages))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for i, p := range b.Packages {
		group.Go(func() error {
			source, ok := b.Files[p.SHA256]
			if !ok {
				return fmt.Errorf("make repository: %s %s was not fetched", p.Name, p.Version)
			}
			name := p.SHA256 + ".deb"
			if err := copyReadable(source, filepath.Join(pool, name)); err != nil {
				return fmt.Errorf("make repository: %w", err)
			}
			control, err := runCommand(ctx, nil, "dpkg-deb", "--field", source)
			if err != nil {
				return fmt.Errorf("make repository: read %s: %w", p.Name, err)
			}
			stanzas[i] = fmt.Sprintf("%s\nFilename: ./%s\nSize: %d\nSHA256: %s\n", strings.TrimRight(control, "\n"), name, p.Size, p.SHA256)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	index := []byte(strings.Join(stanzas, "\n"))
	// mmdebstrap looks for essential packages in the suite by this name only.
	release := fmt.Sprintf("Suite: %[1]s\nCodename: %[1]s\nDate: %[2]s\nArchitectures: amd64\nSHA256:\n %[3]x %[4]d Packages\n",
		b.Suite, time.Unix(b.Epoch, 0).UTC().Format(time.RFC1123), sha256.Sum256(index), len(index))
	if err := os.WriteFile(filepath.Join(pool, "Release"), []byte(release), 0o644); err != nil {
		return fmt.Errorf("make repository: %w", err)
	}
	return os.WriteFile(filepath.Join(pool, "Packages"), index, 0o644)
}

// copyReadable copies a file so that everybody may read it.
func copyReadable(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return errors.Join(out.Close(), os.Chmod(to, 0o644))
}

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
