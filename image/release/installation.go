package release

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"firstlight.dev/firstlight/image/media"
)

// LockName is what the image was built of, in the archive for an installation.
const LockName = "recipe.lock"

// addInstallation writes the one file that a machine without internet needs, after the image: command, image, its list of
// contents and lock, and their digests. The image in it is compressed, the archive is not.
func (r *Release) addInstallation(ctx context.Context, dir string) ([]string, error) {
	base := "firstlight-" + r.Revision.Version()
	name := base + ".tar"
	out, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("make archive: %w", err)
	}
	defer out.Close()

	w := archiveWriter{tar.NewWriter(out), base, r.Revision.Time.UTC().Truncate(time.Second)}
	names, sums := []string{}, map[string]string{}
	for _, file := range r.Command {
		if file.Archive == "" {
			continue
		}
		if err := w.add(file.Archive, int64(file.Mode.Perm()), int64(len(file.Content)), bytes.NewReader(file.Content)); err != nil {
			return nil, err
		}
		names, sums[file.Archive] = append(names, file.Archive), fmt.Sprintf("%x", sha256.Sum256(file.Content))
	}

	image := strings.TrimSuffix(filepath.Base(r.Image), ".img")
	for _, file := range []struct{ name, path string }{
		{image + ".img" + media.SuffixZstd, filepath.Join(dir, image+"-"+r.Revision.Version()+".img"+media.SuffixZstd)},
		{image + ".spdx.json", filepath.Join(dir, image+"-"+r.Revision.Version()+".spdx.json")},
		{LockName, r.Lock},
	} {
		if err := w.addFile(file.name, file.path); err != nil {
			return nil, err
		}
		digest, err := media.DigestFile(ctx, file.path)
		if err != nil {
			return nil, err
		}
		names, sums[file.name] = append(names, file.name), digest
	}

	text, err := media.FormatSums(names, sums)
	if err != nil {
		return nil, err
	}
	if err := w.add(media.SumsName, 0o644, int64(len(text)), strings.NewReader(text)); err != nil {
		return nil, err
	}
	if err := errors.Join(w.Close(), out.Close()); err != nil {
		return nil, fmt.Errorf("make archive: %w", err)
	}

	return []string{name}, nil
}

// archiveWriter writes files of one owner and time into a directory of an archive.
type archiveWriter struct {
	*tar.Writer
	base string
	at   time.Time
}

func (w archiveWriter) add(name string, mode, size int64, content io.Reader) error {
	header := &tar.Header{Name: w.base + "/" + name, Mode: mode, Size: size, ModTime: w.at, Format: tar.FormatUSTAR}
	if err := w.WriteHeader(header); err != nil {
		return fmt.Errorf("make archive: %s: %w", name, err)
	}
	if _, err := io.Copy(w, content); err != nil {
		return fmt.Errorf("make archive: %s: %w", name, err)
	}
	return nil
}

func (w archiveWriter) addFile(name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("make archive: %w", err)
	}
	defer f.Close()

	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("make archive: %w", err)
	}
	return w.add(name, 0o644, info.Size(), f)
}
