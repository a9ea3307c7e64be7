package client

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// retry tries until it is done, or nothing moved for as long as Patience.
func (c Client) retry(ctx context.Context, at func() int64, try func(context.Context) (bool, error)) error {
	limit := c.StallTimeout
	if limit == 0 {
		limit = defaultStallTimeout
	}

	last, moved := at(), time.Now()
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 10*time.Second) {
		done, err := try(ctx)
		if done {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}

		if now := at(); now != last {
			last, moved, pause = now, time.Now(), 200*time.Millisecond
		}

		if !isTransient(err) || time.Since(moved) > limit {
			return err
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// countingReader is a reader that tells how much was read, and can be guarded against a stall.
type countingReader struct {
	from  io.Reader
	moved func(sum int64)
	sum   atomic.Int64
}

func (w *countingReader) Read(p []byte) (int, error) {
	n, err := w.from.Read(p)
	w.moved(w.sum.Add(int64(n)))
	return n, err
}

var errStalled = errors.New("nothing moved for a while")

// cancelOnStall cancels a transfer of which nothing moves before all of it was read.
func (w *countingReader) cancelOnStall(cancel context.CancelCauseFunc, length int64) (stop func()) {
	tick := time.NewTicker(stall)
	ended := make(chan struct{})
	go func() {
		defer tick.Stop()
		for last := int64(-1); ; {
			select {
			case <-ended:
				return
			case <-tick.C:
			}

			now := w.sum.Load()
			if now == length {
				return
			}
			if now == last {
				cancel(errStalled)
				return
			}

			last = now
		}
	}()

	return func() { close(ended) }
}
