// Package limit bounds the connections that a server accepts: of all together, of one address, and of those that
// nothing is known of. What listens on a network accepts through it.
package limit

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits is how many connections there may be at once.
type Limits struct {
	Total      int // those beyond wait in the kernel's queue, where they cost nothing
	PerAddress int // those beyond are closed at once; programs on this machine have no such limit
	// IsOurs reports whether an address is one of this machine's pods, which have no such limit either. Nil: none is.
	IsOurs func(netip.Addr) bool
	// IsKnown reports whether an address is one of those that half of Total is kept for: made-up addresses, however
	// many, never take that. It is asked for each connection and answers from memory. Nil: Total is for everyone.
	IsKnown func(netip.Addr) bool
}

// listener accepts no more connections than free has room for; silent ones are cut by the server's timeouts. Of one
// address it keeps no more than PerAddress, and of unknown ones no more than half: those beyond are closed at once, so
// that one machine cannot fill the room of all.
type listener struct {
	net.Listener
	limits   Limits
	free     chan struct{}
	end      chan struct{}
	once     sync.Once
	log      *slog.Logger
	logLimit rate.Sometimes

	mu      sync.Mutex
	open    map[netip.Addr]int // connections of each address that has one
	unknown int                // connections of addresses that are not known
}

// Listen wraps a listener. What is closed is logged, a line a minute at most.
func Listen(inner net.Listener, limits Limits, log *slog.Logger) net.Listener {
	return &listener{
		Listener: inner,
		limits:   limits,
		free:     make(chan struct{}, limits.Total),
		end:      make(chan struct{}),
		log:      log,
		logLimit: rate.Sometimes{First: 1, Interval: time.Minute},
		open:     map[netip.Addr]int{},
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.end:
		return nil, net.ErrClosed
	}
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			<-l.free
			return nil, err
		}

		client := remoteClient(conn)
		if l.limits.IsOurs != nil && client.IsValid() && l.limits.IsOurs(client) {
			client = netip.Addr{}
		}

		known := !client.IsValid() || l.limits.IsKnown == nil || l.limits.IsKnown(client)
		if why := l.acquire(client, known); why != "" {
			_ = conn.Close()
			l.logLimit.Do(func() {
				l.log.Warn("connections closed: "+why, "client", client, "at", conn.LocalAddr())
			})
			continue
		}

		release := func() { l.release(client, known); <-l.free }
		if tcp, ok := conn.(*net.TCPConn); ok {
			return &countedTCP{TCPConn: tcp, release: release}, nil
		}

		return &countedConn{Conn: conn, release: release}, nil
	}
}

// remoteClient is the address of a client that is another machine; invalid for what runs on
// this one, such as the conductor, which is trusted with as many connections as there are.
// What speaks to one of our addresses from here has that same address.
func remoteClient(conn net.Conn) netip.Addr {
	from, to := addrOf(conn.RemoteAddr()), addrOf(conn.LocalAddr())
	if from.IsLoopback() || from == to {
		return netip.Addr{}
	}
	return from
}

func addrOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap()
}

// acquire counts a connection, or says why it may not be.
func (l *listener) acquire(client netip.Addr, known bool) (why string) {
	if !client.IsValid() {
		return ""
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.open[client] >= l.limits.PerAddress:
		return "too many from one address"
	case !known && l.unknown >= l.limits.Total/2:
		return "too many from addresses of no node"
	}

	l.open[client]++
	if !known {
		l.unknown++
	}

	return ""
}

func (l *listener) release(client netip.Addr, known bool) {
	if !client.IsValid() {
		return
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[client]--; l.open[client] <= 0 {
		delete(l.open, client)
	}

	if !known {
		l.unknown--
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.end) })
	return l.Listener.Close()
}

type countedConn struct {
	net.Conn
	once    sync.Once
	release func()
}

func (c *countedConn) Close() error {
	defer c.once.Do(c.release)
	return c.Conn.Close()
}

// countedTCP keeps the methods of a TCP connection: without its ReadFrom there is no sendfile.
type countedTCP struct {
	*net.TCPConn
	once    sync.Once
	release func()
}

func (c *countedTCP) Close() error {
	defer c.once.Do(c.release)
	return c.TCPConn.Close()
}
