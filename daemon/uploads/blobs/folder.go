package blobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Where in a bucket what is no object lies, and the attribute with an object's metadata, a JSON object.
const (
	uploadsDir    = ".firstlight/uploads"
	gatewayDir    = ".sgwtmp" // of the S3 server that earlier appliances had over the same folder
	metaAttribute = "user.metadata"
)

// Folder keeps objects as files: BUCKET/OBJECT below a directory whose file system has user attributes. An upload
// appends to one file, .firstlight/uploads/SERIAL of its bucket, which gets the object's name in the end.
type Folder struct {
	Dir string // there must be no other backend over it

	names sync.Mutex // a directory is not removed while a file gets a name in it
}

func (f *Folder) path(bucket, object string) string { return filepath.Join(f.Dir, bucket, object) }

// MakeBucket implements Objects.
func (f *Folder) MakeBucket(_ context.Context, bucket string) error {
	if err := os.MkdirAll(f.path(bucket, uploadsDir), 0o755); err != nil {
		return folderError("make bucket "+bucket, err)
	}
	return folderError("make bucket "+bucket, f.syncAbove(f.path(bucket, uploadsDir)))
}

// Put implements Objects.
func (f *Folder) Put(_ context.Context, bucket, object string, data []byte) error {
	file, err := os.OpenFile(f.path(bucket, uploadsDir+"/put-"+randomHex()), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return folderError("store "+object, err)
	}

	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}

	if err = errors.Join(err, file.Close()); err == nil {
		err = f.name(file.Name(), f.path(bucket, object))
	}

	if err != nil {
		_ = os.Remove(file.Name()) // it is swept otherwise
	}

	return folderError("store "+object, err)
}

// name gives a file that is synced the name of an object, for good.
func (f *Folder) name(file, object string) error {
	f.names.Lock()
	err := os.MkdirAll(filepath.Dir(object), 0o755)
	if err == nil {
		err = os.Rename(file, object)
	}

	f.names.Unlock()
	if err != nil {
		return err
	}

	return f.syncAbove(object)
}

// syncAbove makes a name durable, and those of its directories: any of them may be new.
func (f *Folder) syncAbove(file string) error {
	for top := filepath.Clean(f.Dir); file != top; {
		file = filepath.Dir(file)
		dir, err := os.Open(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was the last of its directory that was removed
		}
		if err != nil {
			return err
		}
		if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Get implements Objects.
func (f *Folder) Get(ctx context.Context, bucket, object string, limit int64) ([]byte, error) {
	body, err := f.Open(ctx, bucket, object, 0, limit+1)
	if err != nil {
		return nil, err
	}
	defer body.Close()

	data, err := io.ReadAll(body)
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("it has more than %d bytes", limit)
	}

	return data, folderError("read "+object, err)
}

// Open implements Objects.
func (f *Folder) Open(_ context.Context, bucket, object string, offset, length int64) (io.ReadCloser, error) {
	file, err := os.Open(f.path(bucket, object))
	if err != nil {
		return nil, folderError("read "+object, err)
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(file, offset, length), file}, nil
}

// Stat implements Objects.
func (f *Folder) Stat(_ context.Context, bucket, object string) (Object, error) {
	path := f.path(bucket, object)
	info, err := os.Lstat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}

	if err != nil {
		return Object{}, folderError("stat "+object, err)
	}

	o := Object{Name: object, Size: info.Size(), Modified: info.ModTime(), Meta: map[string]string{}}
	text := make([]byte, 64<<10) // the most that an attribute has
	n, err := unix.Getxattr(path, metaAttribute, text)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return o, nil
	}
	if err != nil {
		return Object{}, folderError("stat "+object, err)
	}

	var meta map[string]string
	_ = json.Unmarshal(text[:n], &meta) // what is no JSON was not written by us
	for name, value := range meta {
		o.Meta[http.CanonicalHeaderKey(name)] = value
	}

	return o, nil
}

// List implements Objects.
func (f *Folder) List(ctx context.Context, bucket, prefix string, yield func(Object) error) error {
	top := f.path(bucket, "")
	below := f.path(bucket, prefix[:strings.LastIndex(prefix, "/")+1])
	err := filepath.WalkDir(below, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(top, path)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, fs.ErrNotExist) && (path != top || prefix != ""):
			return nil // it went meanwhile
		case err != nil:
			return err
		case d.IsDir() && (name == uploadsDir || name == gatewayDir):
			return fs.SkipDir
		case d.IsDir() || !strings.HasPrefix(name, prefix):
			return nil
		}

		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			return nil
		}
		if err != nil {
			return err
		}

		return yield(Object{Name: name, Size: info.Size(), Modified: info.ModTime()})
	})
	return folderError("list bucket "+bucket, err)
}

// Remove implements Objects. Directories that are empty then go as well.
func (f *Folder) Remove(_ context.Context, bucket, object string) error {
	path := f.path(bucket, object)
	f.names.Lock()
	err := os.Remove(path)
	for dir := filepath.Dir(path); err == nil && dir != f.path(bucket, "") && os.Remove(dir) == nil; {
		dir = filepath.Dir(dir)
	}

	f.names.Unlock()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err == nil {
		err = f.syncAbove(path)
	}

	return folderError("remove "+object, err)
}

// folderError says which of ErrNotExist and ErrFull an error is.
func folderError(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %w", what, ErrNotExist)
	}
	return fmt.Errorf("%s: %w", what, FullError(err))
}

// FullError makes ErrFull of what a full file system says: to a client there is no difference.
func FullError(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}
