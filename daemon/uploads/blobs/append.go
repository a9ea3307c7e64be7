package blobs

import (
	"context"
	"errors"
	"fmt"
	"io"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/blobs/diskimage"
)

// Body is what a request sends. Interrupt makes a Read that waits return an error, from
// another goroutine, and every later one.
type Body interface {
	io.Reader
	Interrupt()
}

// AnyLength is the length of a body that ends where it ends.
const AnyLength = -1

// Append receives a piece of an artifact, which must begin at offset, and returns the offset
// after it. What came in before an error is kept unless the error says otherwise: the next
// piece begins where Get says. ctx only bounds the reading; what was read is brought into
// the store also after it has ended.
func (d *Store) Append(ctx context.Context, k artifact.Key, offset, length int64, body Body) (int64, error) {
	e, err := d.acquire(ctx, k, turnWait)
	if err != nil {
		return 0, err
	}
	defer e.release()

	if r := e.metadata(); r.Complete {
		return 0, &Error{Kind: Completed, Text: "Upload already completed", Offset: r.ImageOffset}
	}
	if r := e.metadata(); r.Damaged != "" {
		return 0, &Error{Kind: Damaged, Text: k.Name + " cannot be sent: " + r.Damaged}
	}

	working := context.WithoutCancel(ctx)
	if r := e.copyState().Record; r.ImageOffset < r.ImageLength {
		if err := d.appendRest(ctx, working, e, offset, length, body); err != nil {
			return 0, err
		}
	} else if err := checkPiece(r.ImageOffset, r.ImageLength, offset, length); err != nil {
		return 0, err
	}

	r := e.copyState().Record
	if r.ImageOffset < r.ImageLength {
		return r.ImageOffset, nil
	}

	return r.ImageOffset, d.finish(working, e)
}

// appendRest receives a piece of an upload that lacks some octets.
func (d *Store) appendRest(ctx, working context.Context, e *entry, offset, length int64, body Body) error {
	resuming, cancel := context.WithTimeout(working, settleTime)
	defer cancel()
	s, err := d.resume(resuming, e)
	if err != nil {
		return wrapStoreError(err, e.key.Name, "gone on with", e.copyState().Record.ImageOffset)
	}
	if err := checkPiece(s.offset, s.length, offset, length); err != nil {
		return err
	}

	return d.receive(ctx, e, s, length, body)
}

// checkPiece refuses a piece that does not begin where the upload goes on, or is longer than what
// remains.
func checkPiece(at, whole, offset, length int64) error {
	if offset != at {
		return &Error{
			Kind:   WrongOffset,
			Text:   fmt.Sprintf("Expected Offset %d, actual offset %d", at, offset),
			Offset: at,
		}
	}
	if rest := whole - at; length > rest {
		return &Error{
			Kind: WrongLength,
			Text: fmt.Sprintf(
				"Content length doesn't match upload length. Expected content length %d got %d", rest, length,
			),
			Offset: at,
		}
	}
	return nil
}

// receive reads the body and settles what came in.
func (d *Store) receive(ctx context.Context, e *entry, s *session, length int64, body Body) error {
	reading, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	e.mu.Lock()
	e.cancel = cancel
	e.mu.Unlock()
	stop := context.AfterFunc(reading, body.Interrupt)
	storing := context.WithoutCancel(ctx)
	err := d.readBody(storing, e, s, length, body)
	stop()
	e.mu.Lock()
	e.cancel = nil
	e.mu.Unlock()
	if cause := context.Cause(reading); errors.Is(cause, errRemoved) || errors.Is(cause, errReplaced) {
		d.abandon(e)
		return &Error{Kind: Interrupted, Text: e.key.Name + " is not received further", Err: cause}
	}

	var cut *cutError
	if err != nil && !errors.As(err, &cut) {
		return d.discardAfter(storing, e, err)
	}

	settling, done := context.WithTimeout(storing, settleTime)
	defer done()
	if failed := d.flush(settling, e, s); failed != nil {
		return d.discardAfter(settling, e, failed)
	}
	if cut != nil {
		return &Error{
			Kind:   Cut,
			Text:   fmt.Sprintf("the request ended early; go on from %d", s.offset),
			Offset: s.offset,
			Err:    cut.err,
		}
	}

	return nil
}

// cutError is a body that did not come to its end.
type cutError struct{ err error }

func (c *cutError) Error() string { return "receive: " + c.err.Error() }
func (c *cutError) Unwrap() error { return c.err }

// abandon closes the session; the next one begins with what the store has.
func (d *Store) abandon(e *entry) {
	e.session.close()
	e.session = nil
	e.setLive(e.copyState().Record.ImageOffset)
}

// discardAfter abandons the session after a failure. Content that is refused is given up too.
func (d *Store) discardAfter(ctx context.Context, e *entry, err error) error {
	var known *Error
	if errors.As(err, &known) && known.Kind == Refused {
		if _, failed := d.restart(ctx, e); failed != nil {
			d.Log.Warn("refused content is still there", "artifact", e.key.String(), "error", failed)
		}
		return err
	}

	d.saveSent(ctx, e, err)
	d.abandon(e)
	at := e.metadata().ImageOffset
	if errors.As(err, &known) {
		known.Offset = at
		return err
	}

	return wrapStoreError(err, e.key.Name, "stored", at)
}

// saveSent writes the state after the last part that reached a store that is full now: a
// few octets may still find room.
func (d *Store) saveSent(ctx context.Context, e *entry, why error) {
	s := e.session
	_ = s.waitForParts(0) // one failure is enough
	if !errors.Is(why, ErrFull) || s.stored.offset <= e.copyState().Record.ImageOffset {
		return
	}

	if err := d.write(ctx, e, s, s.stored); err != nil {
		d.Log.Warn("parts that are in the store must be sent again", "artifact", e.key.String(), "error", err)
	}
}

// readBody takes the body into the file of the part under way, and sends each whole part.
func (d *Store) readBody(ctx context.Context, e *entry, s *session, length int64, body Body) error {
	sums := s.sumBeside()
	defer sums.stop()
	for began := s.offset; s.offset < s.length; {
		if s.offset == began || s.offset == s.part {
			if err := d.roomFor(min(s.part+s.upload.PartSize, s.length) - s.offset); err != nil {
				return err
			}
		}

		file, err := d.partFile(e, s)
		if err != nil {
			return err
		}

		end := min(s.part+s.upload.PartSize, s.length)
		// A piece of the buffer's length, or what comes before the body ends: either is
		// taken in before the error is looked at.
		buffer := sums.takeBuffer()
		n, failed := readPiece(body, (*buffer)[:min(int64(len(*buffer)), end-s.offset)])
		if _, err := file.WriteAt((*buffer)[:n], s.place(s.offset)); err != nil {
			sums.add(buffer, 0)
			return FullError(fmt.Errorf("write file of the part: %w", err))
		}

		sums.add(buffer, n)
		s.offset += int64(n)
		e.setLive(s.offset)
		if err := s.checkHead(e.key.Collection); err != nil {
			return err
		}

		if s.offset == s.length && length == AnyLength && failed == nil {
			if n, _ := readPiece(body, make([]byte, 1)); n > 0 {
				sums.wait()
				return d.tooMuch(ctx, e, s)
			}
		}

		if s.offset == end {
			sums.wait()
			if err := d.send(ctx, e, s); err != nil {
				return err
			}
		}

		switch {
		case failed == nil:
		case errors.Is(failed, io.EOF):
			return nil
		default:
			return &cutError{failed}
		}
	}

	return nil
}

// readPiece reads until a piece is full or the body ends, and returns the body's own error.
func readPiece(body Body, piece []byte) (n int, err error) {
	for n < len(piece) && err == nil {
		var k int
		k, err = body.Read(piece[n:])
		n += k
	}
	return n, err
}

// tooMuch gives up the part under way of a body that goes on after the end.
func (d *Store) tooMuch(ctx context.Context, e *entry, s *session) error {
	rest := s.length - s.part
	err := s.waitForParts(0)
	if err == nil {
		err = d.rewind(ctx, e, s)
	}

	if err != nil {
		return err
	}

	return &Error{
		Kind:   WrongLength,
		Text:   fmt.Sprintf("Content length doesn't match upload length. Expected content length %d got more", rest),
		Offset: s.part,
	}
}

// checkHead checks the head of an OS image once it is there.
func (s *session) checkHead(c artifact.Collection) error {
	head := min(diskimage.HeadLength, s.length)
	if s.checked || s.offset < head {
		return nil
	}

	s.checked = true
	if c != artifact.OS {
		return nil
	}

	b := make([]byte, head)
	if _, err := s.file.ReadAt(b, 0); err != nil {
		return fmt.Errorf("read file of the part: %w", err)
	}

	info, err := diskimage.Check(b, s.length)
	if err != nil {
		return &Error{
			Kind: Refused,
			Text: "this is no OS image that can be installed: " + err.Error() + "; nothing is kept",
		}
	}

	s.image = info
	return nil
}
