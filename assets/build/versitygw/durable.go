package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/s3response"
)

// durableBackend is the folder with its writes synced before they are answered: first the data,
// then the name. A part that is torn by a power cut was never answered for, so its name
// may come first.
type durableBackend struct{ *posix.Posix }

// PutObject syncs the data before the object takes its name, so that the object of that
// name is always whole: the old one or the new one.
func (d durableBackend) PutObject(ctx context.Context, in s3response.PutObjectInput) (s3response.PutObjectOutput, error) {
	out, err := d.PutObjectWithPostFunc(ctx, in, func(f *os.File) error { return f.Sync() })
	if err == nil {
		err = syncFolder(filepath.Join(*in.Bucket, *in.Key))
	}
	return out, err
}

func (d durableBackend) UploadPart(ctx context.Context, in *s3.UploadPartInput) (*s3.UploadPartOutput, error) {
	a, err := openAssembly(uploadFolder(*in.Bucket, *in.Key, *in.UploadId), *in.UploadId)
	if err == nil {
		defer a.Close()
		return a.write(in)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	out, err := d.UploadPartWithPostFunc(ctx, in, func(f *os.File) error { return f.Sync() })
	if err == nil {
		err = syncFolder(filepath.Join(uploadFolder(*in.Bucket, *in.Key, *in.UploadId), strconv.Itoa(int(*in.PartNumber))))
	}
	return out, err
}

// CreateMultipartUpload syncs the folder that the parts will lie in.
func (d durableBackend) CreateMultipartUpload(ctx context.Context, in s3response.CreateMultipartUploadInput) (s3response.InitiateMultipartUploadResult, error) {
	if err := expectPartChecksums(&in); err != nil {
		return s3response.InitiateMultipartUploadResult{}, err
	}
	out, err := d.Posix.CreateMultipartUpload(ctx, in)
	if err != nil {
		return out, err
	}
	folder := uploadFolder(*in.Bucket, *in.Key, out.UploadId)
	if err := makeAssembly(folder, in.Metadata); err != nil {
		_ = os.RemoveAll(folder) // it is swept as an abandoned upload otherwise
		return out, err
	}
	if err = syncFile(folder); err == nil {
		err = syncFolder(folder)
	}
	return out, err
}

// CompleteMultipartUpload syncs the whole object before it takes its name: the parts are
// gone once it has. The module (v1.8.0) forgets an error of the copy and goes on with an
// object that is too short; leaving by a panic is the way to have it keep the parts.
func (d durableBackend) CompleteMultipartUpload(ctx context.Context, in *s3.CompleteMultipartUploadInput) (out s3response.CompleteMultipartUploadResult, version string, err error) {
	defer func() {
		if r := recover(); r != nil {
			failed, ours := r.(copyError)
			if !ours {
				panic(r)
			}
			err = noSpaceError(failed.err)
		}
	}()
	var parts []types.CompletedPart
	if in.MultipartUpload != nil {
		parts = in.MultipartUpload.Parts
	}
	assemble, done, err := d.assembler(in, parts)
	if err != nil {
		return out, "", err
	}
	defer done()
	out, version, err = d.CompleteMultipartUploadWithCopy(ctx, in, assemble)
	if err == nil {
		err = syncFolder(filepath.Join(*in.Bucket, *in.Key))
	}
	return out, version, err
}

// assembler makes the object of the parts, which it is called for one by one: of the upload's own file
// if it has one, else by copying them.
func (d durableBackend) assembler(in *s3.CompleteMultipartUploadInput, parts []types.CompletedPart) (assemble posix.CustomCopyFunc, done func(), err error) {
	a, err := openAssembly(uploadFolder(*in.Bucket, *in.Key, *in.UploadId), *in.UploadId)
	rest := len(parts)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return func(from, to *os.File) (bool, error) {
			_, err := io.Copy(to, from) // copy_file_range
			if rest--; err == nil && rest == 0 {
				err = to.Sync()
			}
			if err != nil {
				panic(copyError{err})
			}
			return true, nil
		}, func() {}, nil
	case err != nil:
		return nil, nil, err
	}
	if err := a.check(parts); err != nil {
		a.Close()
		return nil, nil, noSpaceError(err)
	}
	return func(from, to *os.File) (bool, error) {
		if rest--; rest == 0 {
			if err := a.replaceObject(to, filepath.Dir(from.Name()), len(parts)); err != nil {
				panic(copyError{err})
			}
		}
		return true, nil
	}, func() { a.Close() }, nil
}

type copyError struct{ err error }

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// uploadFolder is where the module keeps the parts of an upload.
func uploadFolder(bucket, key, id string) string {
	return filepath.Join(bucket, posix.MetaTmpMultipartDir, fmt.Sprintf("%x", sha256.Sum256([]byte(key))), id)
}

// syncFolder makes the name of a file durable, and those of its folders: any of them may
// be new. They end at the bucket, a first name of a relative path.
func syncFolder(file string) error {
	for dir := filepath.Dir(file); dir != "."; dir = filepath.Dir(dir) {
		if err := syncFile(dir); err != nil {
			return fmt.Errorf("sync folder of %s: %w", file, err)
		}
	}
	return nil
}

// restoreUploads gives uploads back their names whose completion was cut off. The module renames
// the folder of an upload ID to ID.ETAG.inprogress while it completes it, and answers
// "done" to whoever asks again for as long as that is there, which after a kill is for
// ever. Nothing runs yet when this is called.
func restoreUploads(dir string) error {
	found, err := filepath.Glob(filepath.Join(dir, "*", posix.MetaTmpMultipartDir, "*", "*.inprogress"))
	if err != nil {
		return fmt.Errorf("look for uploads cut off: %w", err)
	}
	for _, old := range found {
		if err := reopenOrEnd(old); err != nil {
			return fmt.Errorf("reopen upload: %w", err)
		}
	}
	return nil
}
