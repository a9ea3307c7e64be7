package bootserver

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/boottrace"
)

// maxRanges is how many ranges one request may ask for; firmware and agents ask for one.
const maxRanges = 8

// send sends a file with ranges and conditions (RFC 9110, 13 and 14).
func (s *Server) send(
	w *body,
	r *http.Request,
	machine pxe.Machine,
	step boottrace.Step,
	name string,
	file File,
	info fs.FileInfo,
	digest string,
) {
	header := w.Header()
	header.Set(
		"Content-Type", "application/octet-stream",
	) // named, so that nothing is sniffed and sendfile stays possible
	header.Set("ETag", etag(info, digest))
	if raw, err := hex.DecodeString(digest); err == nil && len(raw) == 32 {
		header.Set("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(raw)+":")
	}

	if strings.Count(r.Header.Get("Range"), ",") >= maxRanges {
		r.Header.Del("Range") // a server may always send the whole (RFC 9110, 14.2)
	}

	note := boottrace.Event{
		MAC:    machine.MAC,
		Addr:   machine.Addr,
		Step:   step,
		Detail: name,
		Total:  info.Size(),
	}
	if r.Method == http.MethodGet {
		s.Record.Add(note)
		w.moved = func() {
			note.Bytes = w.furthestByte()
			s.Record.Progress(note)
		}
	}

	http.ServeContent(w, r, "", info.ModTime(), file)
	if r.Method != http.MethodGet {
		return
	}

	note.Bytes = w.furthestByte()
	if w.err != nil {
		note.Error = "the client went away or stalled before the end"
		s.Log.Warn(
			"http: download cut", "mac", machine.MAC.String(), "client", r.RemoteAddr, "path", truncate(name), "bytes",
			w.bytes, "size", info.Size(), "error", w.err,
		)
	}

	s.Record.Add(note)
}

// etag is the digest where it is known, else what changes when the file does.
func etag(info fs.FileInfo, digest string) string {
	if digest != "" {
		return `"sha256-` + digest + `"`
	}
	return fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), info.Size())
}

// bootStep tells what a file is to a machine: by what it was told to boot, else by the names
// that the deploy ramdisk's files have.
func (s *Server) bootStep(ctx context.Context, machine pxe.Machine, name string) boottrace.Step {
	if len(machine.MAC) > 0 && s.Booter != nil {
		boot := s.Booter.Boot(ctx, machine)
		if boot.Kernel != "" && strings.Trim(boot.Kernel, "/") == name {
			return boottrace.StepKernel
		}

		for _, initrd := range boot.Initrd {
			if strings.Trim(initrd, "/") == name {
				return boottrace.StepRamdisk
			}
		}

		if boot.Script != "" && strings.Trim(boot.Script, "/") == name {
			return boottrace.StepScript
		}
	}
	switch base := path.Base(name); {
	case strings.HasSuffix(base, "_kernel") || strings.HasPrefix(base, "vmlinuz"):
		return boottrace.StepKernel
	case strings.HasSuffix(base, "_ramdisk") || strings.HasPrefix(base, "initrd"):
		return boottrace.StepRamdisk
	case base == "boot.ipxe" || strings.HasPrefix(name, "pxelinux.cfg/"):
		return boottrace.StepScript
	default:
		return boottrace.StepImage
	}
}

// body counts what is sent and moves the write deadline on with every piece of it. It
// hands files on to the connection, so that the kernel copies them (sendfile).
type body struct {
	http.ResponseWriter
	control  *http.ResponseController
	stall    time.Duration
	status   int
	bytes    int64
	err      error
	moved    func() // told about once a second how it goes; may be nil
	reported time.Time
}

// furthestByte is how many bytes of the file lie before the place that was sent last. A BMC reads its disc in ranges.
func (b *body) furthestByte() int64 {
	var first int64
	if n, err := fmt.Sscanf(b.Header().Get("Content-Range"), "bytes %d-", &first); n != 1 || err != nil {
		return b.bytes
	}
	return first + b.bytes
}

// piece must move within the stall time: below 17 kB/s, at one minute, nothing boots.
const piece = 1 << 20

func (b *body) WriteHeader(status int) {
	if b.status == 0 && status >= 200 {
		b.status = status
	}
	b.extendDeadline()
	b.ResponseWriter.WriteHeader(status)
}

func (b *body) Write(p []byte) (int, error) {
	if b.status == 0 {
		b.status = http.StatusOK
	}

	b.extendDeadline()
	n, err := b.ResponseWriter.Write(p)
	b.bytes += int64(n)
	b.fail(err)
	return n, err
}

// ReadFrom implements io.ReaderFrom for http.ServeContent.
func (b *body) ReadFrom(src io.Reader) (int64, error) {
	from, ok := b.ResponseWriter.(io.ReaderFrom)
	rest, limited := src.(*io.LimitedReader)
	if !ok || !limited {
		return io.Copy(struct{ io.Writer }{b}, src)
	}

	if b.status == 0 {
		b.status = http.StatusOK
	}

	var sent int64
	for rest.N > 0 {
		b.extendDeadline()
		want := min(rest.N, piece)
		n, err := move(from, rest.R, want)
		sent, rest.N, b.bytes = sent+n, rest.N-n, b.bytes+n
		if err != nil || n < want {
			b.fail(err)
			return sent, err
		}
	}

	return sent, nil
}

// move sends the next n bytes, or what is left.
func move(to io.ReaderFrom, from io.Reader, n int64) (int64, error) {
	if file, ok := from.(interface {
		WriteN(w io.Writer, n int64) (int64, error)
	}); ok {
		return file.WriteN(readerFrom{to}, n)
	}
	return to.ReadFrom(&io.LimitedReader{R: from, N: n})
}

// readerFrom is written to by io.Copy, which hands it files whole.
type readerFrom struct{ io.ReaderFrom }

func (r readerFrom) Write(b []byte) (int, error) {
	n, err := r.ReadFrom(bytes.NewReader(b))
	return int(n), err
}

// extendDeadline gives the next piece its time. Where there is no connection below (a test's
// recorder) there is nothing to stall either.
func (b *body) extendDeadline() {
	now := time.Now()
	_ = b.control.SetWriteDeadline(now.Add(b.stall))
	if b.moved != nil && now.Sub(b.reported) >= time.Second {
		b.reported = now
		b.moved()
	}
}

func (b *body) fail(err error) {
	if err != nil && b.err == nil {
		b.err = err
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (b *body) Unwrap() http.ResponseWriter { return b.ResponseWriter }
