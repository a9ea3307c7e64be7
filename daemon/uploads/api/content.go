package api

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// contentHeaders come with an artifact's bytes.
func contentHeaders() []string {
	return []string{"ETag", "Repr-Digest", "Content-Disposition", "Accept-Ranges", "Content-Range", "Last-Modified"}
}

// deadlineWriter is a response to a client that may be slow but not stuck. It keeps back what
// net/http writes of a failure, so that it can be said as a problem.
type deadlineWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	silence time.Duration
	count   func(float64)
	failed  int // status; 0 is none
}

var sendBuffers = sync.Pool{New: func() any { b := make([]byte, 128<<10); return &b }}

func (p *deadlineWriter) WriteHeader(status int) {
	if status >= 400 {
		p.failed = status
		return
	}
	p.ResponseWriter.WriteHeader(status)
}

func (p *deadlineWriter) Write(b []byte) (int, error) {
	if p.failed != 0 {
		return len(b), nil
	}
	if err := p.control.SetWriteDeadline(time.Now().Add(p.silence)); err != nil {
		return 0, err
	}

	n, err := p.ResponseWriter.Write(b)
	p.count(float64(n))
	return n, err
}

// ReadFrom copies in larger pieces than io.Copy would.
func (p *deadlineWriter) ReadFrom(r io.Reader) (sum int64, err error) {
	buffer := sendBuffers.Get().(*[]byte)
	defer sendBuffers.Put(buffer)
	for {
		n, failed := io.ReadAtLeast(r, *buffer, len(*buffer))
		if n > 0 {
			k, err := p.Write((*buffer)[:n])
			sum += int64(k)
			if err != nil {
				return sum, err
			}
		}
		switch {
		case failed == nil:
		case errors.Is(failed, io.EOF), errors.Is(failed, io.ErrUnexpectedEOF):
			return sum, nil // CopyN tells what is missing
		default:
			return sum, failed
		}
	}
}
