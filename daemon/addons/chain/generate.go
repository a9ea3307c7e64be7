package chain

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"firstlight.dev/firstlight/daemon/addons/chain/counters"
)

// What a generator may be asked for. Larger packets would be divided on the way, and parts have no ports.
const (
	maxRate = 1_000_000
	maxSize = 1400
)

// Generator sends datagrams to one address, evenly.
type Generator struct {
	To       string        // ADDRESS:PORT
	Rate     int           // packets per second
	Size     int           // bytes of each, without headers
	Listen   string        // ADDRESS:PORT of its page
	Interval time.Duration // between two lines in the log
	Log      *slog.Logger

	sent, failed atomic.Uint64
	problem      atomic.Value // the last error's text
	meter        meter
}

// Sending is what a generator says of itself.
type Sending struct {
	To        string  `json:"to"`
	Sent      uint64  `json:"sent"`   // packets
	Bytes     uint64  `json:"bytes"`  // of these, without headers
	Failed    uint64  `json:"failed"` // packets that the kernel refused
	PerSecond float64 `json:"perSecond"`
}

// Run sends until ctx ends. What cannot be sent is counted, and not sent again.
func (g *Generator) Run(ctx context.Context) error {
	switch {
	case g.Rate < 1 || g.Rate > maxRate:
		return fmt.Errorf("rate %d: write 1 to %d packets per second", g.Rate, maxRate)
	case g.Size < 1 || g.Size > maxSize:
		return fmt.Errorf("size %d: write 1 to %d bytes", g.Size, maxSize)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp4", g.To)
	if err != nil {
		return fmt.Errorf("find the way to %s: %w", g.To, err)
	}
	defer conn.Close()

	g.Log.Info("sends", "to", g.To, "packets_per_second", g.Rate, "bytes", g.Size)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.page().serve(ctx, g.Listen) })
	group.Go(func() error { g.send(ctx, conn); return nil })
	group.Go(func() error { repeat(ctx, g.Interval, g.report); return nil })
	return group.Wait()
}

func (g *Generator) send(ctx context.Context, conn net.Conn) {
	// A tenth of a second may be made up for if the machine is busy.
	limiter := rate.NewLimiter(rate.Limit(g.Rate), max(1, g.Rate/10))
	for payload := make([]byte, g.Size); limiter.Wait(ctx) == nil; {
		if _, err := conn.Write(payload); err != nil {
			g.failed.Add(1)
			g.problem.Store(err.Error())
			continue
		}
		g.sent.Add(1)
	}
}

// bytesOf are those of so many packets: each has the same.
func (g *Generator) bytesOf(packets uint64) uint64 { return packets * uint64(g.Size) }

func (g *Generator) report() {
	sent, failed := g.sent.Load(), g.failed.Load()
	g.Log.Info("sent", "packets_per_second", g.meter.advance(sent, time.Now()), "packets", sent, "failed", failed)
	if problem, _ := g.problem.Swap("").(string); problem != "" {
		g.Log.Warn("packets could not be sent", "error", problem)
	}
}

func (g *Generator) page() page {
	return page{
		Now: func(context.Context) (any, error) {
			sent := g.sent.Load()
			return Sending{g.To, sent, g.bytesOf(sent), g.failed.Load(), g.meter.rate()}, nil
		},
		Ready: func() error { return nil },
		Metrics: []prometheus.Collector{
			counter(counters.SentPackets, "Packets that the generator sent.", g.sent.Load),
			counter(counters.SentBytes, "Bytes of these, without headers.", func() uint64 { return g.bytesOf(g.sent.Load()) }),
			counter(counters.SendErrors, "Packets that the generator could not send.", g.failed.Load),
		},
		Log: g.Log,
	}
}
