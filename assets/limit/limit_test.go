package limit_test

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/limit"
)

const patience = time.Minute

// far shows a client at 127.0.0.N as the machine 172.22.0.N.
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
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(machine(from.Addr().As4()[3]), from.Port()))
}

func (farConn) LocalAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort("172.22.0.1:8080"))
}

func machine(octet byte) netip.Addr { return netip.AddrFrom4([4]byte{172, 22, 0, octet}) }

// serve accepts within limits and keeps what it accepted.
func serve(t *testing.T, limits limit.Limits) (addr string, accepted chan net.Conn) {
	inner, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	listener := limit.Listen(far{inner}, limits, slog.New(slog.DiscardHandler))
	accepted = make(chan net.Conn, 100)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("."))
			accepted <- conn
		}
	}()
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	return inner.Addr().String(), accepted
}

// dial connects as a machine and reports whether it was accepted, rather than closed.
func dial(t *testing.T, addr string, octet byte) bool {
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, octet)}}).Dial("tcp4", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = conn.Read(make([]byte, 1))
	require.False(t, errors.Is(err, os.ErrDeadlineExceeded), "neither accepted nor closed")
	return err == nil
}

// TestMadeUpAddressesTakeHalfAtMost: however many there are, those that are known are accepted.
func TestMadeUpAddressesTakeHalfAtMost(t *testing.T) {
	known := machine(2)
	addr, accepted := serve(t, limit.Limits{Total: 8, PerAddress: 3, IsKnown: func(a netip.Addr) bool { return a == known }})
	served := 0
	for octet := byte(10); octet < 30; octet++ {
		if dial(t, addr, octet) {
			served++
		}
	}
	assert.Equal(t, 4, served)
	for range 3 {
		assert.True(t, dial(t, addr, 2))
	}
	assert.False(t, dial(t, addr, 2), "more of one address than it may have")

	(<-accepted).Close()
	assert.True(t, dial(t, addr, 40), "what one has given back another may have")
	assert.False(t, dial(t, addr, 41))
}

func TestOurPodsHaveNoLimitOfTheirOwn(t *testing.T) {
	pod := machine(5)
	addr, _ := serve(t, limit.Limits{
		Total: 20, PerAddress: 2,
		IsOurs:  func(a netip.Addr) bool { return a == pod },
		IsKnown: func(netip.Addr) bool { return false },
	})
	for range 15 {
		assert.True(t, dial(t, addr, 5))
	}
	assert.True(t, dial(t, addr, 6))
}
