package tftp_test

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// lossyRelay forwards UDP between clients and Server, and loses, doubles and swaps packets: a bad network, where
// the kernel has none to offer. What happens to a packet depends on the seed and on its number alone. Each client gets an upstream port of its
// own; answers come from the relay's port, whatever port the server used, and what the
// client sends then goes to that port: as TFTP's transfer identifiers want it.
type lossyRelay struct {
	Server    netip.AddrPort
	Loss      float64 // share of packets that vanish, either way
	Duplicate float64 // share that arrive twice
	Reorder   float64 // share that are held until a later one has passed
	Seed      uint64

	Lost, Doubled, Swapped atomic.Int64

	mu     sync.Mutex
	random *rand.Rand
}

type relayPath struct {
	up     *net.UDPConn
	server netip.AddrPort
}

// Run relays what arrives at conn until ctx ends; it closes conn.
func (r *lossyRelay) Run(ctx context.Context, conn *net.UDPConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	r.random = rand.New(rand.NewPCG(r.Seed, 1))
	var running sync.WaitGroup
	var ups []*net.UDPConn
	defer func() {
		for _, up := range ups {
			_ = up.Close()
		}
		running.Wait()
	}()
	paths := map[netip.AddrPort]*relayPath{}
	var mu sync.Mutex
	buffer := make([]byte, 1<<16)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buffer)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		mu.Lock()
		p := paths[from]
		if p == nil {
			up, err := net.ListenUDP("udp4", nil)
			if err != nil {
				mu.Unlock()
				return err
			}
			ups = append(ups, up)
			p = &relayPath{up: up, server: r.Server}
			paths[from] = p
			running.Go(func() {
				down := make([]byte, 1<<16)
				for {
					n, source, err := up.ReadFromUDPAddrPort(down)
					if err != nil {
						return
					}
					mu.Lock()
					p.server = netip.AddrPortFrom(source.Addr().Unmap(), source.Port())
					mu.Unlock()
					r.forward(down[:n], func(packet []byte) { _, _ = conn.WriteToUDPAddrPort(packet, from) })
				}
			})
		}
		to := p.server
		if n >= 2 && buffer[0] == 0 && (buffer[1] == 1 || buffer[1] == 2) {
			to = r.Server // a TFTP request always goes to the server's own port
		}
		mu.Unlock()
		r.forward(buffer[:n], func(packet []byte) { _, _ = p.up.WriteToUDPAddrPort(packet, to) })
	}
}

// forward forwards a packet, or not, or twice, or late.
func (r *lossyRelay) forward(packet []byte, send func([]byte)) {
	r.mu.Lock()
	chance := r.random.Float64()
	r.mu.Unlock()
	switch {
	case chance < r.Loss:
		r.Lost.Add(1)
	case chance < r.Loss+r.Duplicate:
		r.Doubled.Add(1)
		send(packet)
		send(packet)
	case chance < r.Loss+r.Duplicate+r.Reorder:
		r.Swapped.Add(1)
		late := append([]byte(nil), packet...)
		time.AfterFunc(2*time.Millisecond, func() { send(late) })
	default:
		send(packet)
	}
}
