package bootserver

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// limitedListener accepts no more connections than free has room for; the rest wait in the
// kernel's queue, where they cost us nothing, and silent ones are cut by the timeouts.
// Of one address it keeps no more than perClient: those beyond are closed at once, so that
// one machine cannot fill the room of all.
type limitedListener struct {
	net.Listener
	free      chan struct{}
	end       chan struct{}
	once      sync.Once
	perClient int
	log       *slog.Logger
	logLimit  rate.Sometimes

	mu   sync.Mutex
	open map[netip.Addr]int // connections of each address that has one
}

func newLimitedListener(listener net.Listener, connections, perClient int, log *slog.Logger) *limitedListener {
	return &limitedListener{
		Listener:  listener,
		free:      make(chan struct{}, connections),
		end:       make(chan struct{}),
		perClient: perClient,
		log:       log,
		logLimit:  rate.Sometimes{First: 1, Interval: time.Minute},
		open:      map[netip.Addr]int{},
	}
}

func (l *limitedListener) Accept() (net.Conn, error) {
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
		if !l.acquire(client) {
			_ = conn.Close()
			l.logLimit.Do(func() {
				l.log.Warn(
					"http: connections closed: too many from one address", "client", client, "limit", l.perClient,
				)
			})
			continue
		}

		release := func() { l.release(client); <-l.free }
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

// acquire counts a connection, unless its address has as many as it may.
func (l *limitedListener) acquire(client netip.Addr) bool {
	if !client.IsValid() {
		return true
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[client] >= l.perClient {
		return false
	}

	l.open[client]++
	return true
}

func (l *limitedListener) release(client netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[client]--; l.open[client] <= 0 {
		delete(l.open, client)
	}
}

func (l *limitedListener) Close() error {
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
