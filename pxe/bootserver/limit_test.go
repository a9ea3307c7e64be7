package bootserver_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// far is a listener that shows a client at 127.0.0.N as the machine 172.22.0.N: what comes
// from this machine has no limit of its own, and the tests have no other.
type far struct{ net.Listener }

func (l far) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return farConn{conn}, nil
}

type farConn struct{ net.Conn }

func (c farConn) RemoteAddr() net.Addr {
	from := c.Conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 22, 0, from.Addr().As4()[3]}), from.Port()))
}

func (farConn) LocalAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort("172.22.0.1:8080"))
}

// startFar serves machines of a rack.
func startFar(t *testing.T, b *fixture) string {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Serve(ctx, far{listener}) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	return listener.Addr().String()
}

// dialFrom connects as the machine with that last octet.
func dialFrom(t *testing.T, addr string, octet byte) net.Conn {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, octet)}}
	conn, err := d.Dial("tcp4", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

const scriptOfOne = "GET /ipxe/52-54-00-00-00-01 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

// isServed asks for a script and waits for it until the time is up.
func isServed(t *testing.T, conn net.Conn, wait time.Duration) bool {
	require.NoError(t, conn.SetDeadline(time.Now().Add(wait)))
	if _, err := conn.Write([]byte(scriptOfOne)); err != nil {
		return false
	}
	return answers(conn)
}

func answers(conn net.Conn) bool {
	answer := make([]byte, 15)
	n, err := conn.Read(answer)
	return err == nil && string(answer[:n]) == "HTTP/1.1 200 OK"
}

// closed counts the connections that the server has closed. One whose look came too late
// for its deadline counts as open, so a test waits for the number it expects.
func closed(open []net.Conn) (n int) {
	for _, conn := range open {
		_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			n++
		}
	}
	return n
}

func closes(t *testing.T, want int, open []net.Conn) {
	t.Helper()
	n := 0
	require.Eventually(t, func() bool { n = closed(open); return n >= want }, patience, 10*time.Millisecond, "waited for %d", want)
	assert.Equal(t, want, n)
}

// TestFault13SilentConnections: one machine opens more connections than there are for all,
// says nothing, and opens new ones for those that are closed. Another gets its script.
func TestFault13SilentConnections(t *testing.T) {
	b := newFixture(t)
	addr := startFar(t, b)
	var open []net.Conn
	for range 1100 {
		open = append(open, dialFrom(t, addr, 2))
	}
	require.True(t, isServed(t, dialFrom(t, addr, 3), patience))
	closes(t, 1100-64, open)
	for range 100 {
		dialFrom(t, addr, 2)
	}
	assert.True(t, isServed(t, dialFrom(t, addr, 3), patience))
}

// TestFault13OneClientManyConnections: what an address may have it gets again when it gives
// some back, and what it may not have takes nothing from the others.
func TestFault13OneClientManyConnections(t *testing.T) {
	b := newFixture(t)
	b.MaxConnections, b.MaxPerClient = 8, 3
	addr := startFar(t, b)
	var open []net.Conn
	for range 20 {
		open = append(open, dialFrom(t, addr, 2))
	}
	require.True(t, isServed(t, dialFrom(t, addr, 3), patience))
	closes(t, 17, open)
	assert.Zero(t, closed(open[:3]), "those that came first stay")
	require.NoError(t, open[0].Close())
	require.Eventually(t, func() bool { return isServed(t, dialFrom(t, addr, 2), patience) }, patience, 10*time.Millisecond)
}

// TestFault13AllConnections: when all together have as many as there are, a machine that has fewer than another gets
// one of that one's, and only that.
func TestFault13AllConnections(t *testing.T) {
	b := newFixture(t)
	b.MaxConnections, b.MaxPerClient = 4, 2
	addr := startFar(t, b)
	silent := []net.Conn{dialFrom(t, addr, 2), dialFrom(t, addr, 2), dialFrom(t, addr, 3), dialFrom(t, addr, 3)}
	require.True(t, isServed(t, dialFrom(t, addr, 4), patience))
	closes(t, 1, silent)
	require.True(t, isServed(t, dialFrom(t, addr, 4), patience), "a place that was given back")
	closes(t, 1, silent)
}

// TestFault13ManyAddresses: sixteen machines that are not there open all the connections that one address may have
// and do not end their requests. A node of the site gets its script before any deadline ends one of them, and so does
// a machine that nobody knows.
func TestFault13ManyAddresses(t *testing.T) {
	b := newFixture(t)
	b.rack.leases[netip.MustParseAddr("172.22.0.200")] = net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}
	b.MaxConnections, b.MaxPerClient = 128, 8
	addr := startFar(t, b)
	for octet := byte(2); octet < 18; octet++ {
		for range 8 {
			conn := dialFrom(t, addr, octet)
			_, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n"))
			require.NoError(t, err)
		}
	}
	assert.True(t, isServed(t, dialFrom(t, addr, 200), 5*time.Second), "the node waits")
	assert.True(t, isServed(t, dialFrom(t, addr, 100), 5*time.Second), "another machine waits")
}

// TestOwnConnectionsHaveNoLimitOfTheirOwn: the conductor and what else runs on this machine
// share one address.
func TestOwnConnectionsHaveNoLimitOfTheirOwn(t *testing.T) {
	b := newFixture(t)
	b.MaxPerClient = 2
	addr := start(t, b)
	var open []net.Conn
	for range 5 {
		open = append(open, dialFrom(t, addr, 1))
	}
	require.True(t, isServed(t, dialFrom(t, addr, 1), patience))
	assert.Zero(t, closed(open))
}
