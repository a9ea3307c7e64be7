package blobs

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// file is the file of an upload.
func (f *Folder) file(u Upload) string { return f.path(u.Bucket, uploadsDir+"/"+u.Serial) }

// Begin implements Uploads.
func (f *Folder) Begin(_ context.Context, u Upload, _ map[string]string) (id string, err error) {
	return u.Serial, nil
}

// PartFile implements Uploads: all parts are in one file.
func (f *Folder) PartFile(u Upload) (*os.File, bool, error) {
	if err := f.adopt(u); err != nil {
		return nil, false, folderError("take over upload of "+u.Object, err)
	}

	path := f.file(u)
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644); err == nil {
			err = f.syncAbove(path)
		}
	}

	return file, true, folderError("open file of "+u.Object, err)
}

// PutPart implements Uploads: the part lies where it belongs.
func (f *Folder) PutPart(_ context.Context, u Upload, number int, file *os.File, _ int64, _ uint32) error {
	return folderError(fmt.Sprintf("sync part %d of %s", number, u.Object), unix.Fdatasync(int(file.Fd())))
}

// PutFragment implements Uploads, in the same way.
func (f *Folder) PutFragment(_ context.Context, u Upload, t Fragment, file *os.File, _ int64) error {
	return folderError(fmt.Sprintf("sync %s at %d", u.Object, t.Offset), unix.Fdatasync(int(file.Fd())))
}

// LoadFragment implements Uploads.
func (f *Folder) LoadFragment(_ context.Context, u Upload, t Fragment, file *os.File, at int64) (bool, error) {
	info, err := file.Stat()
	return err == nil && info.Size() >= at+t.Length, folderError("stat "+u.Object, err)
}

// RemoveFragments implements Uploads: they are of the file.
func (f *Folder) RemoveFragments(context.Context, Upload, []Fragment) error { return nil }

// LostParts implements Uploads.
func (f *Folder) LostParts(_ context.Context, u Upload, n int64) (string, error) {
	if err := f.adopt(u); err != nil {
		return "", folderError("take over upload of "+u.Object, err)
	}

	size := int64(0)
	info, err := os.Stat(f.file(u))
	if err == nil {
		size = info.Size()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", folderError("stat "+u.Object, err)
	}

	if want := min(n*u.PartSize, u.Length); size < want {
		return fmt.Sprintf("its file has %d bytes, not %d", size, want), nil
	}

	return "", nil
}

// Complete implements Uploads. What is kept with the object, and all octets, are on the medium before the name is.
func (f *Folder) Complete(ctx context.Context, u Upload, n int64, meta map[string]string) (lost string, err error) {
	if lost, err = f.LostParts(ctx, u, n); lost != "" || err != nil {
		return lost, err
	}

	text, err := json.Marshal(meta)
	if err != nil {
		return "", fmt.Errorf("encode what is kept with %s: %w", u.Object, err)
	}

	file, err := os.OpenFile(f.file(u), os.O_RDWR, 0)
	if err != nil {
		return "", folderError("complete "+u.Object, err)
	}

	err = file.Truncate(u.Length)
	if err == nil {
		err = unix.Fsetxattr(int(file.Fd()), metaAttribute, text, 0)
	}

	if err == nil {
		err = file.Sync()
	}

	if err = errors.Join(err, file.Close()); err == nil {
		err = f.name(file.Name(), f.path(u.Bucket, u.Object))
	}

	return "", folderError("complete "+u.Object, err)
}

// Discard implements Uploads.
func (f *Folder) Discard(_ context.Context, u Upload) error {
	errs := []error{os.RemoveAll(f.file(u)), os.RemoveAll(f.fragments(u))}
	for _, dir := range f.gatewayUpload(u) {
		errs = append(errs, os.RemoveAll(dir))
	}
	return folderError("remove upload of "+u.Object, errors.Join(errs...))
}

// Sweep implements Uploads.
func (f *Folder) Sweep(
	_ context.Context,
	bucket string,
	named func(serial, id string) bool,
	now time.Time,
	age time.Duration,
) error {
	sweep := func(pattern string, least time.Duration, named func(name string) bool) error {
		found, err := filepath.Glob(f.path(bucket, pattern))
		for _, path := range found {
			info, failed := os.Lstat(path)
			if failed != nil || now.Sub(info.ModTime()) <= least || named(filepath.Base(path)) {
				continue
			}
			err = errors.Join(err, os.RemoveAll(path))
		}
		return folderError("sweep bucket "+bucket, err)
	}
	bySerial := func(name string) bool { return named(name, "") }
	return errors.Join(
		sweep(uploadsDir+"/*", SweepAge, bySerial),
		sweep(FragmentPrefix+"*", SweepAge, bySerial),
		sweep(gatewayDir+"/multipart/*/*", age, func(name string) bool {
			id, _, _ := strings.Cut(name, ".")
			return named("", id)
		}))
}

// An appliance of before had an S3 server over the folder. What that left of an unfinished upload is taken over: a
// file of its parts, where they belong, and an object for each fragment.

// fragments is the folder of the fragments that an S3 server kept.
func (f *Folder) fragments(u Upload) string { return f.path(u.Bucket, FragmentPrefix+u.Serial) }

// gatewayUpload finds the folder of an upload's parts, also of one whose completion was cut off.
func (f *Folder) gatewayUpload(u Upload) []string {
	if u.ID == "" || u.ID == u.Serial || strings.ContainsAny(u.ID, `/\*?[`) {
		return nil
	}
	found, _ := filepath.Glob(f.path(
		u.Bucket, fmt.Sprintf("%s/multipart/%x/%s*", gatewayDir, sha256.Sum256([]byte(u.Object)), u.ID),
	))
	return found
}

// adopt makes an upload's file of what an S3 server left. After a power cut it is done again, until the file has its
// name.
func (f *Folder) adopt(u Upload) error {
	path, from := f.file(u), ""
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	dirs := f.gatewayUpload(u)
	_, err := os.Stat(f.fragments(u))
	if len(dirs) == 0 && errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if from = path + ".adopted"; len(dirs) > 0 {
		from = filepath.Join(dirs[0], "object")
	}

	file, err := os.OpenFile(from, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}

	for _, t := range u.Tail {
		err = errors.Join(err, copyAt(file, t.Offset, filepath.Join(f.fragments(u), strconv.FormatInt(t.Offset, 10))))
	}

	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = f.name(from, path)
	}

	for _, dir := range append(dirs, f.fragments(u)) {
		if err == nil {
			err = os.RemoveAll(dir)
		}
	}

	return err
}

// copyAt writes a file into another from an offset on; one that is not there is left out, which the sum tells.
func copyAt(to *os.File, offset int64, path string) error {
	from, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer from.Close()

	_, err = io.Copy(io.NewOffsetWriter(to, offset), from)
	return err
}
