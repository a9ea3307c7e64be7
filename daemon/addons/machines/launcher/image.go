package launcher

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	v1 "firstlight.dev/firstlight/daemon/addons/machines/v1"
)

// attempts is how often an image is asked for until it is given up; stallTimeout how long nothing of it may arrive.
const (
	attempts     = 10
	stallTimeout = time.Minute
)

// refusedError says that another attempt would end as this one did.
type refusedError struct{ error }

// provideImage is the image in a folder, fetched if that has none; a raw one is grown to size bytes, or to what the
// image asks for.
func (p *Preparation) provideImage(ctx context.Context, dir string, i v1.Image, size int64) (File, error) {
	file, found, err := findDisk(dir)
	if err != nil || found {
		return file, err
	}
	if err := os.MkdirAll(dir, 0o770); err != nil {
		return File{}, err
	}
	if i.Capacity != nil {
		size = i.Capacity.Value()
	}

	for n := 1; ; n++ {
		file, err := p.fetch(ctx, dir, i, size)
		var refused refusedError
		if err == nil || n == attempts || errors.As(err, &refused) || ctx.Err() != nil {
			return file, err
		}
		p.Log.Warn("image was not fetched and is asked for again", "error", err)
		select {
		case <-time.After(p.Pause):
		case <-ctx.Done():
			return File{}, ctx.Err()
		}
	}
}

// fetch writes the image to a file of another name first.
func (p *Preparation) fetch(ctx context.Context, dir string, i v1.Image, size int64) (File, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stalled := time.AfterFunc(stallTimeout, cancel)
	defer stalled.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, i.URL, nil)
	if err != nil {
		return File{}, refusedError{err}
	}
	response, err := p.Client.Do(request)
	if err != nil {
		return File{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		err := fmt.Errorf("%s answers %s", i.URL, response.Status)
		if response.StatusCode/100 == 4 {
			return File{}, refusedError{err}
		}
		return File{}, err
	}

	f, err := os.OpenFile(filepath.Join(dir, "image.part"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o660)
	if err != nil {
		return File{}, refusedError{err}
	}
	defer f.Close()
	p.Log.Info("image is being fetched", "url", i.URL, "bytes", response.ContentLength)
	out := &diskWriter{file: f, sum: sha256.New(), arrive: func() { stalled.Reset(stallTimeout) }}
	if _, err := io.Copy(out, response.Body); err != nil {
		return File{}, fmt.Errorf("fetch %s: %w", i.URL, err)
	}

	if got := "sha256:" + hex.EncodeToString(out.sum.Sum(nil)); i.Checksum != "" && got != i.Checksum {
		return File{}, refusedError{fmt.Errorf("%s has the checksum %s, not %s", i.URL, got, i.Checksum)}
	}
	format, err := readFormat(out.head)
	if err != nil {
		return File{}, refusedError{fmt.Errorf("%s: %w", i.URL, err)}
	}
	name := rawFile
	if format == QCOW2 {
		name, size = qcow2File, out.size // a qcow2 file says itself how large its disk is
		if i.Capacity != nil {
			return File{}, refusedError{fmt.Errorf("%s is qcow2, which has a size of its own; take capacity out", i.URL)}
		}
	}
	file := filepath.Join(dir, name)
	if err := finish(f, file, max(size, out.size)); err != nil {
		return File{}, refusedError{err}
	}
	p.Log.Info("image was fetched", "url", i.URL, "format", format, "bytes", out.size)
	return File{file, format}, nil
}

// headSize is how much of a file tells its format.
const headSize = 104

// diskWriter writes a file, with holes where there are zeros.
type diskWriter struct {
	file interface {
		WriteAt(b []byte, off int64) (int, error)
	}
	sum  hash.Hash
	head []byte // the first bytes
	size int64

	arrive func() // is called with each piece
}

var zeros [64 << 10]byte

func (w *diskWriter) Write(b []byte) (int, error) {
	w.arrive()
	if missing := headSize - len(w.head); missing > 0 {
		w.head = append(w.head, b[:min(missing, len(b))]...)
	}
	_, _ = w.sum.Write(b) // a hash
	for done := 0; done < len(b); {
		part := b[done:min(done+len(zeros), len(b))]
		if !bytes.Equal(part, zeros[:len(part)]) {
			if _, err := w.file.WriteAt(part, w.size); err != nil {
				return done, refusedError{err}
			}
		}
		w.size += int64(len(part))
		done += len(part)
	}
	return len(b), nil
}

// readFormat tells the format by the beginning of a file. A qcow2 file with another file behind it is refused (QEMU's
// docs/interop/qcow2.rst: backing_file_offset at byte 8, incompatible_features at byte 72).
func readFormat(head []byte) (Format, error) {
	if !bytes.HasPrefix(head, []byte("QFI\xfb")) {
		return Raw, nil
	}
	const hasDataFile = 1 << 2
	switch {
	case len(head) < headSize:
		return "", errors.New("the image is truncated")
	case binary.BigEndian.Uint64(head[8:]) != 0:
		return "", errors.New("the image is a difference to a backing file; convert it: qemu-img convert -O qcow2")
	case binary.BigEndian.Uint32(head[4:]) >= 3 && binary.BigEndian.Uint64(head[72:])&hasDataFile != 0:
		return "", errors.New("the image has its data in another file; convert it: qemu-img convert -O qcow2")
	}
	return QCOW2, nil
}
