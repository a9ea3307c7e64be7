package api

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
)

// serveAppend receives a piece. What is wrong is said in ICN's order: unknown, complete, no
// offset, another offset, too long.
func (a *Agent) serveAppend(w http.ResponseWriter, r *http.Request, c call) error {
	have, err := c.blobs.Get(c.Key)
	if err != nil {
		return err
	}
	if have.Complete {
		return &blobs.Error{Kind: blobs.Completed, Text: "Upload already completed", Offset: have.ImageOffset}
	}

	offset, err := parseOffset(r.Header.Values(artifact.HeaderOffset))
	if err != nil {
		return err
	}

	release, err := a.acquireTransfer()
	if err != nil {
		return err
	}
	defer release()

	length := r.ContentLength // -1 if it is not announced
	b := &deadlineBody{
		from:    r.Body,
		control: http.NewResponseController(w),
		silence: a.Silence,
		count:   a.metrics.received.Add,
	}
	after, err := c.blobs.Append(untilStop(r.Context()), c.Key, offset, length, b)
	if err != nil {
		return err
	}

	w.Header().Set(artifact.HeaderOffset, strconv.FormatInt(after, 10))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// runKey is under which a request's context has the agent's own.
type runKey struct{}

// untilStop is a context that ends with the agent, and not when a request's client is gone:
// net/http says that of the last octets of a body as soon as it has them, before we do.
func untilStop(request context.Context) context.Context {
	if run, ok := request.Value(runKey{}).(context.Context); ok {
		return run
	}
	return context.WithoutCancel(request)
}

// parseOffset reads the header: decimal digits, once.
func parseOffset(values []string) (int64, error) {
	if len(values) != 1 {
		return 0, newProblem(
			http.StatusBadRequest, "send one header %s: the offset at which the body begins", artifact.HeaderOffset,
		)
	}

	n, err := strconv.ParseUint(values[0], 10, 63)
	if err != nil {
		return 0, newProblem(http.StatusBadRequest, "%s %q is not a number of bytes", artifact.HeaderOffset, values[0])
	}

	return int64(n), nil
}

// acquireTransfer takes one of the places for bodies of any length.
func (a *Agent) acquireTransfer() (release func(), err error) {
	select {
	case a.transfers <- struct{}{}:
		return func() { <-a.transfers }, nil
	default:
		return nil, newProblem(
			http.StatusServiceUnavailable, "%d uploads and downloads are under way, which is the most; try again",
			maxTransfers,
		)
	}
}

// deadlineBody is a request's body that may be slow but not silent, and can be interrupted.
type deadlineBody struct {
	from    io.Reader
	control *http.ResponseController
	silence time.Duration
	count   func(float64)

	mu         sync.Mutex
	over       bool
	extendedAt time.Time // when the deadline was last moved
}

var errInterrupted = errors.New("interrupted")

func (b *deadlineBody) Read(p []byte) (int, error) {
	if err := b.wait(); err != nil {
		return 0, err
	}

	n, err := b.from.Read(p)
	b.count(float64(n))
	if errors.Is(err, io.EOF) {
		b.liftDeadline()
	}

	return n, err
}

// liftDeadline lifts the deadline of a body that is whole: what follows may take long, and a
// deadline that passes then would look like a client that is gone. One that fell silent
// keeps it, so that net/http does not wait for the rest either.
func (b *deadlineBody) liftDeadline() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		_ = b.control.SetReadDeadline(time.Time{}) // a connection that is gone reads no more anyway
	}
}

func (b *deadlineBody) wait() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return errInterrupted
	}

	now := time.Now()
	if now.Sub(b.extendedAt) < b.silence/64 { // 60,000 reads are a GiB
		return nil
	}

	b.extendedAt = now
	return b.control.SetReadDeadline(now.Add(b.silence))
}

// Interrupt ends a Read that waits.
func (b *deadlineBody) Interrupt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	_ = b.control.SetReadDeadline(time.Unix(1, 0)) // a connection that is gone reads no more anyway
}

func (a *Agent) serveContent(w http.ResponseWriter, r *http.Request, c call) error {
	release, err := a.acquireTransfer()
	if err != nil {
		return err
	}
	defer release()

	bytes, have, err := c.blobs.Content(r.Context(), c.Key)
	if err != nil {
		return err
	}
	defer bytes.Close()

	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", have.ImageName))
	if sum, err := hex.DecodeString(have.SHA256); err == nil && len(sum) > 0 {
		h.Set("ETag", `"sha256:`+have.SHA256+`"`)
		h.Set("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sum)+":") // RFC 9530
	}

	// Ranges beyond the first only cost; net/http would answer any number of them.
	if strings.Contains(r.Header.Get("Range"), ",") {
		r.Header.Del("Range")
	}

	paced := &deadlineWriter{
		ResponseWriter: w,
		control:        http.NewResponseController(w),
		silence:        a.Silence,
		count:          a.metrics.sent.Add,
	}
	http.ServeContent(paced, r, "", have.Updated, bytes)
	_ = paced.control.SetWriteDeadline(time.Time{}) // a connection that is gone
	switch paced.failed {
	case 0:
		return nil
	case http.StatusRequestedRangeNotSatisfiable:
		return newProblem(
			paced.failed, "there are %d bytes; none of them is in the range %q", have.ImageLength,
			r.Header.Get("Range"),
		)
	case http.StatusPreconditionFailed:
		return newProblem(paced.failed, "the artifact is another one than the request's condition says")
	}

	return newProblem(paced.failed, "the store does not give the artifact")
}
