// Package mkfs makes file systems with Debian's own programs. Equal input gives equal bytes.
package mkfs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Tool is a program of the pinned Debian suite with the arguments that start it, such as
// that suite's ld.so with --library-path and the program's path.
type Tool []string

// Run starts the tool with further arguments. Locale (UTF-8: tars hold such names) and time zone of the caller do not
// reach it; stamp, unless zero, is the time it takes for now. The error carries the command
// and what it said.
func (t Tool) Run(ctx context.Context, stamp time.Time, stdin io.Reader, args ...string) error {
	if len(t) == 0 {
		return fmt.Errorf("run tool %v: no program given", args)
	}

	cmd := exec.CommandContext(ctx, t[0], append(t[1:len(t):len(t)], args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "TZ=UTC"}
	if !stamp.IsZero() {
		cmd.Env = append(cmd.Env, fmt.Sprintf("SOURCE_DATE_EPOCH=%d", stamp.Unix()))
	}

	cmd.Stdin = stdin
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(said.String())
		return fmt.Errorf("run %s: %w: %s", strings.Join(cmd.Args, " "), err, text[:min(len(text), 1000)])
	}

	return nil
}

// Compression is how a squashfs is compressed, as mksquashfs is told. At 15, the level that squashfs-tools take by
// themselves, programs are 5 % smaller, but take five times as long to compress, the daemon too, which is appended at
// each of its changes and cannot have a level of its own. Reading takes 6 % longer than at 6, and at 15 13 %.
var Compression = []string{"-comp", "zstd", "-Xcompression-level", "10", "-b", "256K"}

// Squashfs writes the files of a tar stream to out as squashfs (zstd, 256 KiB blocks).
// Owners, modes, times and device nodes are those of the tar, no time later than stamp; the file
// system's own time is stamp. The top directory is root's and 0755; squashfs-tools before 4.6 ignore
// the tar's entry of it and take the time of the day, or stamp. Blocks lie in the order of the tar, so
// equal bytes need an equal tar.
func Squashfs(ctx context.Context, mksquashfs Tool, tar io.Reader, out string, stamp time.Time) error {
	if err := os.Remove(out); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("make squashfs: %w", err)
	}

	args := append([]string{"-", out, "-tar", "-noappend", "-no-progress", "-quiet"}, Compression...)
	args = append(args, "-root-mode", "0755", "-root-uid", "0", "-root-gid", "0")
	if err := mksquashfs.Run(ctx, stamp, tar, args...); err != nil {
		return fmt.Errorf("make squashfs: %w", err)
	}

	return nil
}

// Append adds a directory, under its own name, to the top of the squashfs that is all there
// is in file from byte at on, and that has no such name there. All below is root's and as old as stamp; modes are those of the directory.
// The blocks of the file system stay as they are; its tables are written anew behind the new
// blocks. Equal bytes before and an equal directory give equal bytes.
func Append(ctx context.Context, mksquashfs Tool, dir, file string, at int64, stamp time.Time) error {
	then := fmt.Sprint(stamp.Unix())
	err := mksquashfs.Run(ctx, time.Time{}, nil, dir, file, "-offset", fmt.Sprint(at), "-keep-as-directory", "-no-recovery", "-no-progress", "-quiet",
		"-all-root", "-all-time", then, "-mkfs-time", then,
		"-root-mode", "0755", "-root-uid", "0", "-root-gid", "0", "-root-time", then)
	if err != nil {
		return fmt.Errorf("append %s to squashfs: %w", dir, err)
	}

	return nil
}

// Ext4Options are the identity of an ext4 file system.
type Ext4Options struct {
	Label    string
	UUID     string
	HashSeed string // a UUID
	Size     int64  // bytes
	Stamp    time.Time
}

// Ext4 makes an ext4 file system from a tar file. mke2fs must be 1.47.1 or later, built
// with libarchive.
func Ext4(ctx context.Context, mke2fs Tool, tar, out string, o Ext4Options) error {
	if err := os.Remove(out); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("make ext4: %w", err)
	}

	f, err := os.OpenFile(out, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("make ext4: %w", err)
	}
	if err := f.Truncate(o.Size); err != nil {
		return fmt.Errorf("make ext4: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("make ext4: %w", err)
	}

	err = mke2fs.Run(ctx, o.Stamp, nil, "-q", "-F", "-t", "ext4", "-d", tar, "-L", o.Label, "-U", o.UUID,
		"-E", "lazy_itable_init=0,hash_seed="+o.HashSeed, "-m", "1", out)
	if err != nil {
		return fmt.Errorf("make ext4: %w", err)
	}

	return nil
}
