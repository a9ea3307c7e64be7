package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"
)

// An upload whose client says how long its parts are is assembled while it comes in: each part
// is written into one file, where it belongs, and that file becomes the object. The module copies
// all parts when the upload is completed, which costs the medium every octet twice, needs room for
// two of them, and lets the client wait for minutes at the end of a long upload.
//
// In the upload's folder the part's own name is a hole of its length with the module's attributes.
const (
	partSizeMeta      = "part-size" // of the client's metadata, in octets; all parts but the last have it
	assemblyName      = "object"    // in the upload's folder
	partSizeAttribute = "part-size" // of that file

	// Attributes that posix (v1.8.0) gives a part.
	etagAttribute      = "etag"
	checksumsAttribute = "checksums"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var buffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// assembly is the file of an upload.
type assembly struct {
	*os.File
	folder   string
	upload   string
	partSize int64
	length   int64 // of the object; after check
}

// expectPartChecksums has the module expect the CRC-32C of each part of such an upload, of which it makes the
// object's own: its default is a second sum over all octets.
func expectPartChecksums(in *s3response.CreateMultipartUploadInput) error {
	if in.Metadata[partSizeMeta] == "" {
		return nil
	}
	if in.ChecksumAlgorithm != "" && in.ChecksumAlgorithm != types.ChecksumAlgorithmCrc32c {
		return s3err.GetAPIError(s3err.ErrInvalidRequest)
	}
	in.ChecksumAlgorithm, in.ChecksumType = types.ChecksumAlgorithmCrc32c, types.ChecksumTypeFullObject
	return nil
}

// makeAssembly makes the file of a new upload, if its metadata ask for it.
func makeAssembly(folder string, metadata map[string]string) error {
	text := metadata[partSizeMeta]
	if text == "" {
		return nil
	}
	if size, err := strconv.ParseInt(text, 10, 64); err != nil || size < backend.MinPartSize {
		return s3err.GetAPIError(s3err.ErrInvalidRequest)
	}
	f, err := os.OpenFile(filepath.Join(folder, assemblyName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("make file of upload: %w", err)
	}
	err = (meta.XattrMeta{}).StoreAttribute(f, "", "", partSizeAttribute, []byte(text))
	return errors.Join(err, f.Close())
}

// openAssembly opens the file of an upload; fs.ErrNotExist is an upload that has none. One that
// became the object has come to its end: nothing may be written to it any more.
func openAssembly(folder, upload string) (*assembly, error) {
	f, err := os.OpenFile(filepath.Join(folder, assemblyName), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open file of upload: %w", err)
	}
	a := &assembly{File: f, folder: folder, upload: upload}
	done, err := isObject(f)
	if err == nil && done {
		err = s3err.GetNoSuchUploadErr(upload)
	}
	if err == nil {
		var text []byte
		if text, err = (meta.XattrMeta{}).RetrieveAttribute(f, "", "", partSizeAttribute); err == nil {
			a.partSize, err = strconv.ParseInt(string(text), 10, 64)
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return a, nil
}

// isObject tells whether the file of an upload has the object's name besides its own.
func isObject(f *os.File) (bool, error) {
	fi, err := f.Stat()
	if err != nil {
		return false, fmt.Errorf("look at file of upload: %w", err)
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && st.Nlink > 1, nil
}

// write takes in a part: its octets are on the medium before its name is.
func (a *assembly) write(in *s3.UploadPartInput) (*s3.UploadPartOutput, error) {
	number := int(*in.PartNumber)
	if number < 1 || in.ContentLength == nil || *in.ContentLength < 1 || *in.ContentLength > a.partSize || in.ChecksumCRC32C == nil {
		return nil, s3err.GetAPIError(s3err.ErrInvalidRequest)
	}
	name, length := strconv.Itoa(number), *in.ContentLength
	// What was there under the number is no part from here on.
	if err := os.Remove(filepath.Join(a.folder, name)); err == nil {
		if err := syncFile(a.folder); err != nil {
			return nil, fmt.Errorf("sync folder of part %d: %w", number, err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove part %d: %w", number, err)
	}
	crc, err := a.fill(int64(number-1)*a.partSize, length, in.Body)
	if err != nil {
		return nil, noSpaceError(fmt.Errorf("write part %d: %w", number, err))
	}
	sum := base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc))
	if sum != *in.ChecksumCRC32C {
		return nil, s3err.GetChecksumBadDigestErr(types.ChecksumAlgorithmCrc32c)
	}
	if err := syscall.Fdatasync(int(a.Fd())); err != nil {
		return nil, noSpaceError(fmt.Errorf("sync part %d: %w", number, err))
	}
	etag := `"CRC32C-` + sum + `"`
	if err := a.namePart(name, length, etag, sum); err != nil {
		return nil, noSpaceError(fmt.Errorf("note part %d: %w", number, err))
	}
	return &s3.UploadPartOutput{ETag: &etag, ChecksumCRC32C: &sum}, nil
}

// fill writes length octets of a body at an offset, and returns their CRC-32C. A body is read to its end also
// when there is no room, or its client would not read the answer.
func (a *assembly) fill(at, length int64, body io.Reader) (crc uint32, err error) {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	if err := syscall.Fallocate(int(a.Fd()), 0, at, length); err != nil && !errors.Is(err, syscall.EOPNOTSUPP) {
		_, _ = io.CopyBuffer(io.Discard, struct{ io.Reader }{body}, *buffer)
		return 0, err
	}
	for rest := length; rest > 0; {
		n, err := io.ReadFull(body, (*buffer)[:min(rest, int64(len(*buffer)))])
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = s3err.GetAPIError(s3err.ErrIncompleteBody)
			}
			return 0, err
		}
		piece := (*buffer)[:n]
		if _, err := a.WriteAt(piece, at); err != nil {
			_, _ = io.CopyBuffer(io.Discard, struct{ io.Reader }{body}, *buffer)
			return 0, err
		}
		crc = crc32.Update(crc, castagnoli, piece)
		at, rest = at+int64(n), rest-int64(n)
	}
	return crc, nil
}

// namePart gives a part its name.
func (a *assembly) namePart(name string, length int64, etag, sum string) error {
	sums, err := json.Marshal(s3response.Checksum{Algorithm: types.ChecksumAlgorithmCrc32c, CRC32C: &sum})
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(a.folder, "."+name+"-*")
	if err != nil {
		return err
	}
	err = errors.Join(f.Truncate(length), (meta.XattrMeta{}).StoreAttribute(f, "", "", etagAttribute, []byte(etag)),
		(meta.XattrMeta{}).StoreAttribute(f, "", "", checksumsAttribute, sums))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(a.folder, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncFile(a.folder)
}

// check looks that the parts fill the file, and says their sums, which not every client does.
func (a *assembly) check(parts []types.CompletedPart) error {
	var total int64
	for i, p := range parts {
		if p.PartNumber == nil || int(*p.PartNumber) != i+1 {
			return s3err.GetAPIError(s3err.ErrInvalidPartOrder)
		}
		name := filepath.Join(a.folder, strconv.Itoa(i+1))
		fi, err := os.Lstat(name)
		if err != nil || i < len(parts)-1 && fi.Size() != a.partSize {
			return s3err.GetInvalidPartErr(a.upload, *p.PartNumber, backend.GetStringFromPtr(p.ETag))
		}
		total += fi.Size()
		if p.ChecksumCRC32C != nil {
			continue
		}
		text, err := (meta.XattrMeta{}).RetrieveAttribute(nil, "", name, checksumsAttribute)
		if err != nil {
			return fmt.Errorf("read sum of part %d: %w", i+1, err)
		}
		var sums s3response.Checksum
		if err := json.Unmarshal(text, &sums); err != nil {
			return fmt.Errorf("read sum of part %d: %w", i+1, err)
		}
		parts[i].ChecksumCRC32C = sums.CRC32C
	}
	a.length = total
	return nil
}

// replaceObject puts the file in the place of another that is open and has no name yet: what is done to that
// one from here on is done to the upload's. A file system that knows only files with names has it copied.
func (a *assembly) replaceObject(to *os.File, folder string, parts int) error {
	if err := removePartNames(folder, parts); err != nil {
		return err
	}
	if err := a.Truncate(a.length); err != nil {
		return fmt.Errorf("cut file of upload: %w", err)
	}
	if !strings.HasPrefix(to.Name(), "/proc/") { // posix (v1.8.0) calls a file without a name so
		_, err := io.Copy(to, io.NewSectionReader(a, 0, a.length))
		return errors.Join(err, to.Sync())
	}
	if err := a.Sync(); err != nil {
		return fmt.Errorf("sync file of upload: %w", err)
	}
	if err := syscall.Dup3(int(a.Fd()), int(to.Fd()), syscall.O_CLOEXEC); err != nil {
		return fmt.Errorf("make the upload's file the object: %w", err)
	}
	return nil
}

// removePartNames removes the names of the parts after the last: they are not of the object, and the file is cut
// before them.
func removePartNames(folder string, last int) error {
	all, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("list parts: %w", err)
	}
	gone := false
	for _, e := range all {
		if n, err := strconv.Atoi(e.Name()); err != nil || n <= last {
			continue
		}
		if err := os.Remove(filepath.Join(folder, e.Name())); err != nil {
			return fmt.Errorf("forget part: %w", err)
		}
		gone = true
	}
	if !gone {
		return nil
	}
	return syncFile(folder)
}

// noSpaceError is the protocol's own error for a medium without room.
func noSpaceError(err error) error {
	var known s3err.S3Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return s3err.GetAPIError(s3err.ErrNoSpaceLeftOnDevice)
	}
	return err
}

// reopenOrEnd ends the upload of a folder whose file became the object already, and gives any other
// back its name.
func reopenOrEnd(folder string) error {
	f, err := os.Open(filepath.Join(folder, assemblyName))
	if err == nil {
		done, err := isObject(f)
		f.Close()
		if err != nil {
			return err
		}
		if done {
			fmt.Fprintln(os.Stderr, "versitygw: ended upload", filepath.Base(folder))
			return os.RemoveAll(folder)
		}
	}
	id, _, _ := strings.Cut(filepath.Base(folder), ".")
	if err := os.Rename(folder, filepath.Join(filepath.Dir(folder), id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	fmt.Fprintln(os.Stderr, "versitygw: reopened upload", id)
	return nil
}
