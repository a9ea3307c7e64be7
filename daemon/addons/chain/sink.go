package chain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"firstlight.dev/firstlight/daemon/addons/chain/counters"
)

// Sink counts datagrams that come to one address. It answers none.
type Sink struct {
	At       string        // ADDRESS:PORT
	Listen   string        // ADDRESS:PORT of its page
	Interval time.Duration // between two lines in the log
	Log      *slog.Logger

	packets, bytes atomic.Uint64
	meter          meter
}

// Receiving is what a sink says of itself.
type Receiving struct {
	Received  uint64  `json:"received"` // packets
	Bytes     uint64  `json:"bytes"`    // of these, without headers
	PerSecond float64 `json:"perSecond"`
}

// readBuffer is how many bytes the kernel keeps while the sink is busy, as far as the kernel allows it.
const readBuffer = 4 << 20

// Run counts until ctx ends.
func (s *Sink) Run(ctx context.Context) error {
	conn, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp4", s.At)
	if err != nil {
		return fmt.Errorf("listen at %s: %w; if the add-on multus is ready, delete this pod to have it attached again", s.At, err)
	}
	defer conn.Close()
	if udp, ok := conn.(*net.UDPConn); ok {
		_ = udp.SetReadBuffer(readBuffer)
	}

	s.Log.Info("receives", "at", s.At)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.page().serve(ctx, s.Listen) })
	group.Go(func() error { return s.receive(conn) })
	group.Go(func() error { repeat(ctx, s.Interval, s.report); return nil })
	group.Go(func() error { <-ctx.Done(); return conn.Close() })
	return group.Wait()
}

func (s *Sink) receive(conn net.PacketConn) error {
	for b := make([]byte, 64<<10); ; {
		n, _, err := conn.ReadFrom(b)
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return fmt.Errorf("receive at %s: %w", s.At, err)
		}
		s.packets.Add(1)
		s.bytes.Add(uint64(n))
	}
}

func (s *Sink) report() {
	packets := s.packets.Load()
	s.Log.Info("received", "packets_per_second", s.meter.advance(packets, time.Now()), "packets", packets,
		"bytes", s.bytes.Load())
}

func (s *Sink) page() page {
	return page{
		Now: func(context.Context) (any, error) {
			return Receiving{s.packets.Load(), s.bytes.Load(), s.meter.rate()}, nil
		},
		Ready: func() error { return nil },
		Metrics: []prometheus.Collector{
			counter(counters.ReceivedPackets, "Packets that came to the sink.", s.packets.Load),
			counter(counters.ReceivedBytes, "Bytes of these, without headers.", s.bytes.Load),
		},
		Log: s.Log,
	}
}
