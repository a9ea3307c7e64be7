package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets"
)

// File is a file of the command's packages.
type File struct {
	Debian  string // where Debian has it, without leading slash; empty: not in the Debian package
	Archive string // where it is in the archive; empty: not in it
	Mode    fs.FileMode
	Content []byte
}

// addCommand writes the Debian package and the archive.
func (r *Release) addCommand(ctx context.Context, dir string) ([]string, error) {
	version := debianVersion(r.Revision)
	deb := fmt.Sprintf("firstlight_%s_%s.deb", version, runtime.GOARCH)
	if err := writeDebian(ctx, filepath.Join(dir, deb), version, r.Revision.Time, r.Command); err != nil {
		return nil, err
	}

	base := fmt.Sprintf("firstlight-%s-linux-%s", r.Revision.Version(), runtime.GOARCH)
	text, err := packArchive(base, r.Revision.Time, r.Command)
	if err != nil {
		return nil, err
	}

	archive := base + ".tar.gz"
	return []string{deb, archive}, os.WriteFile(filepath.Join(dir, archive), text, 0o644)
}

// debianVersion is a version of which dpkg knows that it comes before the release that is worked towards, and after
// those of earlier commits.
func debianVersion(r assets.Revision) string {
	base, commit, isDevelopment := strings.Cut(r.Version(), "-dev+")
	if !isDevelopment {
		return base
	}
	return base + "~dev" + r.Time.UTC().Format("20060102150405") + "+" + commit
}

// control is the Debian package's, deb-control(5). What the virtual rack needs is suggested: the rest runs without.
const control = `Package: firstlight
Version: %s
Architecture: %s
Maintainer: The Firstlight authors
Section: admin
Priority: optional
Suggests: qemu-system-x86, qemu-utils, ovmf, openipmi, ipmitool, openssh-client, squashfs-tools
Description: check, write and boot the Firstlight stick
 Firstlight is one USB stick that brings up a one-node Kubernetes with DHCP, TFTP,
 HTTP boot, Ironic and Metal3, and installs a rack. This is the command for the
 workstation: it verifies and writes sticks, checks site documents, uploads
 artifacts, and runs a virtual rack.
`

// writeDebian stages a tree and has dpkg-deb pack it. Owners, times and modes are not this machine's, and one thread
// makes the same bytes everywhere.
func writeDebian(ctx context.Context, out, version string, at time.Time, files []File) error {
	staged, err := os.MkdirTemp(filepath.Dir(out), ".deb-")
	if err != nil {
		return fmt.Errorf("make Debian package: %w", err)
	}
	defer os.RemoveAll(staged)

	all := []File{{Debian: "DEBIAN/control", Mode: 0o644, Content: fmt.Appendf(nil, control, version, runtime.GOARCH)}}
	for _, file := range append(all, files...) {
		if file.Debian == "" {
			continue
		}

		path := filepath.Join(staged, filepath.FromSlash(file.Debian))
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, file.Content, file.Mode)
		}

		if err := errors.Join(err, os.Chmod(path, file.Mode)); err != nil { // whatever the umask is
			return fmt.Errorf("make Debian package: %w", err)
		}
	}

	err = filepath.WalkDir(staged, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(path, 0o755) // as above
		}
		return errors.Join(err, os.Chtimes(path, at, at))
	})
	if err != nil {
		return fmt.Errorf("make Debian package: %w", err)
	}

	cmd := exec.CommandContext(ctx, "dpkg-deb", "--root-owner-group", "--threads-max=1", "-Zxz", "--build", staged, out)
	cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", at.Unix()))
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make Debian package: dpkg-deb: %w: %s", err, bytes.TrimSpace(text))
	}

	return nil
}

// packArchive makes a tar.gz with everything in the directory base.
func packArchive(base string, at time.Time, files []File) ([]byte, error) {
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	w := archiveWriter{tar.NewWriter(packed), base, at.UTC().Truncate(time.Second)}
	for _, file := range files {
		if file.Archive == "" {
			continue
		}
		if err := w.add(file.Archive, int64(file.Mode.Perm()), int64(len(file.Content)), bytes.NewReader(file.Content)); err != nil {
			return nil, err
		}
	}

	if err := errors.Join(w.Close(), packed.Close()); err != nil {
		return nil, fmt.Errorf("make archive: %w", err)
	}

	return out.Bytes(), nil
}
