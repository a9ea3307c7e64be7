package limit

import (
	"context"
	"log/slog"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// How many lines requests and packets may cause. A rack that powers on causes some hundred at once; a loop of requests
// would push everything else out of the journal.
const (
	linesPerSecond = 20
	linesAtOnce    = 400
)

// Log is a logger whose lines, those of errors apart, are limited. How many were left out is said in the next one that
// is written.
func Log(log *slog.Logger) *slog.Logger {
	return slog.New(&handler{
		Handler: log.Handler(),
		lines:   rate.NewLimiter(linesPerSecond, linesAtOnce),
		leftOut: new(atomic.Int64),
	})
}

// handler drops lines beyond the limit, which those of With share.
type handler struct {
	slog.Handler
	lines   *rate.Limiter
	leftOut *atomic.Int64
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelError && !h.lines.Allow() {
		h.leftOut.Add(1)
		return nil
	}
	if n := h.leftOut.Swap(0); n > 0 {
		r.AddAttrs(slog.Int64("lines left out before", n))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attrs), h.lines, h.leftOut}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.lines, h.leftOut}
}
