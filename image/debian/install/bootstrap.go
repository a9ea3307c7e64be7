package install

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"firstlight.dev/firstlight/image/debian"
	"firstlight.dev/firstlight/image/debian/pool"
)

// bootstrap writes what mmdebstrap installs as a tar archive to out. No root is needed where this user may
// make user namespaces and has subordinate ids.
func (r Root) bootstrap(ctx context.Context, out string) error {
	dir, err := os.MkdirTemp("", "firstlight-root-") // in /tmp: the ids of a user namespace must reach it
	if err != nil {
		return fmt.Errorf("make root: %w", err)
	}
	defer os.RemoveAll(dir)

	if err := os.Chmod(dir, 0o755); err != nil {
		return fmt.Errorf("make root: %w", err)
	}
	if err := r.makeRepository(ctx, filepath.Join(dir, "repository")); err != nil {
		return err
	}

	mode := "unshare"
	if os.Getuid() == 0 {
		mode = "root"
	}

	var names []string
	for _, p := range r.Packages {
		names = append(names, p.Name)
	}

	args := []string{
		"--mode=" + mode, "--variant=essential", "--format=tar", "--architectures=amd64",
		"--include=" + strings.Join(names, ","),
		`--aptopt=APT::Install-Recommends "false"`,
		`--aptopt=Acquire::Languages "none"`,
		`--dpkgopt=force-confdef`,
	}
	for _, pattern := range r.Exclude {
		args = append(args, "--dpkgopt=path-exclude="+pattern)
	}

	for _, pattern := range r.Include {
		args = append(args, "--dpkgopt=path-include="+pattern)
	}

	// Before the kernel, whose scripts make an initramfs with the drivers of disks and networks.
	if r.Firmware != "" {
		firmware := filepath.Join(dir, "firmware.tar")
		if err := copyFile(firmware, r.Firmware); err != nil {
			return fmt.Errorf("make root: copy firmware: %w", err)
		}
		args = append(args, "--essential-hook=tar-in "+firmware+" /")
	}

	for i, hook := range r.Hooks {
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

	args = append(args, r.Suite, "-", "deb [trusted=yes] copy:"+dir+"/repository ./")

	f, err := os.Create(out)
	if err != nil {
		return fmt.Errorf("make root: %w", err)
	}

	var complaints strings.Builder
	cmd := exec.CommandContext(ctx, "mmdebstrap", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + dir,
		"LC_ALL=C.UTF-8",
		"TZ=UTC",
		"TMPDIR=/tmp",
		"SOURCE_DATE_EPOCH=" + strconv.FormatInt(r.Epoch, 10),
	}
	cmd.Stdout, cmd.Stderr = f, io.MultiWriter(&complaints, r.Log)
	// It removes its tree, whose files have owners that are not ours, when it is asked to end.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	if err := errors.Join(cmd.Run(), f.Close()); err != nil {
		return fmt.Errorf(
			"make root %s: mmdebstrap: %w: %s", r.Name, err, debian.SummarizeComplaints(complaints.String()),
		)
	}

	return nil
}

// copyFile copies a file to where every user may read it.
func copyFile(to, from string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}

// makeRepository makes a directory that apt reads as an archive with exactly these packages.
func (r Root) makeRepository(ctx context.Context, dir string) error {
	if err := pool.Make(ctx, r.Packages, r.Files, dir); err != nil {
		return err
	}

	index, err := os.ReadFile(filepath.Join(dir, pool.IndexName))
	if err != nil {
		return fmt.Errorf("make repository: %w", err)
	}

	// mmdebstrap looks for essential packages in the suite by this name only.
	release := fmt.Sprintf("Suite: %[1]s\nCodename: %[1]s\nDate: %[2]s\nArchitectures: amd64\nSHA256:\n %[3]x %[4]d %[5]s\n",
		r.Suite, time.Unix(r.Epoch, 0).UTC().Format(time.RFC1123), sha256.Sum256(index), len(index), pool.IndexName)
	return os.WriteFile(filepath.Join(dir, "Release"), []byte(release), 0o644)
}
