package limit

import (
	"io"
	"net"
	"net/netip"
	"time"
)

// listener accepts whatever comes and closes at once what has no place, so that nobody waits in the kernel's queue
// behind machines that have had their share.
type listener struct {
	net.Listener
	shares *shares
	inside func(netip.Addr) bool // nil: no other machine's address is
	stall  time.Duration

	handshakes *Senders // nil: connections are in clear, and cost little
}

// Accept returns the next connection that has a place.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}

		client := remoteClient(raw)
		if l.inside != nil && client.IsValid() && l.inside(client) {
			client = netip.Addr{}
		}

		if l.handshakes != nil && client.IsValid() && !l.handshakes.allow(client) {
			_ = raw.Close()
			continue
		}

		c := &conn{Conn: raw, shares: l.shares, client: client, stall: l.stall}
		if !l.shares.admit(c) {
			_ = raw.Close()
			continue
		}
		if tcp, ok := raw.(*net.TCPConn); ok {
			return &tcpConn{conn: c, tcp: tcp}, nil
		}

		return c, nil
	}
}

// remoteClient is the address of a client that is another machine; invalid for what runs on this one, such as the
// conductor, which is trusted with as many connections as it wants. What speaks to one of our addresses from here has
// that same address.
func remoteClient(c net.Conn) netip.Addr {
	from, to := addrOf(c.RemoteAddr()), addrOf(c.LocalAddr())
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

// piece of an answer that must move within the stall time: below 17 kB/s, at one minute, nothing boots.
const piece = 1 << 20

// conn has a place in the shares until it is closed, and a deadline for each piece that is written.
type conn struct {
	net.Conn
	shares   *shares
	client   netip.Addr
	reserved bool // its place is one of those that are kept for known machines
	stall    time.Duration
}

func (c *conn) Close() error {
	c.shares.release(c)
	return c.Conn.Close()
}

// Write writes in pieces, each with its own deadline.
func (c *conn) Write(b []byte) (written int, err error) {
	for first := true; first || len(b) > 0; first = false {
		part := b[:min(len(b), piece)]
		c.extend()
		n, err := c.Conn.Write(part)
		written += n
		if err != nil {
			return written, err
		}
		b = b[len(part):]
	}
	return written, nil
}

func (c *conn) extend() { _ = c.SetWriteDeadline(time.Now().Add(c.stall)) }

// tcpConn keeps ReadFrom: without it there is no sendfile.
type tcpConn struct {
	*conn
	tcp *net.TCPConn
}

// ReadFrom sends a file in pieces.
func (c *tcpConn) ReadFrom(src io.Reader) (sent int64, err error) {
	limited, ok := src.(*io.LimitedReader)
	if !ok {
		return io.Copy(struct{ io.Writer }{c.conn}, src)
	}

	for limited.N > 0 {
		c.extend()
		want := min(limited.N, piece)
		n, err := c.tcp.ReadFrom(&io.LimitedReader{R: limited.R, N: want})
		sent, limited.N = sent+n, limited.N-n
		if err != nil || n < want {
			return sent, err
		}
	}

	return sent, nil
}

// CloseWrite ends our side, as a TCP connection does.
func (c *tcpConn) CloseWrite() error { return c.tcp.CloseWrite() }
