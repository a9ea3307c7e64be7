package endpoint

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/vswitch"
)

func pair(t *testing.T, also ...netip.Addr) (*vswitch.Switch, *Endpoint, *Endpoint) {
	s := vswitch.New("test", netip.MustParsePrefix("10.0.0.0/24"))
	one, err := Attach(s, "one", net.HardwareAddr{2, 0, 0, 0, 0, 1}, netip.MustParsePrefix("10.0.0.1/24"))
	require.NoError(t, err)
	two, err := Attach(s, "two", net.HardwareAddr{2, 0, 0, 0, 0, 2}, netip.MustParsePrefix("10.0.0.2/24"), also...)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, one.Close())
		assert.NoError(t, two.Close())
		assert.NoError(t, s.Close())
	})
	return s, one, two
}

// echo answers each connection with what it says.
func echo(t *testing.T, st *Endpoint, at string) {
	l, err := st.Listen(netip.MustParseAddrPort(at))
	require.NoError(t, err)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
}

func patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestTCP sends a megabyte there and back, over a cable that loses every twentieth frame.
func TestTCP(t *testing.T) {
	_, one, two := pair(t)
	echo(t, two, "10.0.0.2:22")
	for _, fault := range []vswitch.Fault{{}, {Loss: 0.05}} {
		two.Port().SetFault(fault)
		conn, err := one.Dial(patience(t), netip.MustParseAddrPort("10.0.0.2:22"))
		require.NoError(t, err)
		text := make([]byte, 1<<20)
		for i := range text {
			text[i] = byte(rand.Uint32())
		}
		go func() { _, _ = conn.Write(text) }()
		got := make([]byte, len(text))
		_, err = io.ReadFull(conn, got)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(text, got))
		require.NoError(t, conn.Close())
	}
}

// TestUDPOfManyAddresses is what the BMCs of a rack are: each of its own address.
func TestUDPOfManyAddresses(t *testing.T) {
	bmcs := []netip.Addr{netip.MustParseAddr("10.0.0.101"), netip.MustParseAddr("10.0.0.102")}
	_, one, two := pair(t, bmcs...)
	client, err := one.ListenPacket(netip.MustParseAddrPort("10.0.0.1:5000"))
	require.NoError(t, err)
	for _, bmc := range bmcs {
		at := netip.AddrPortFrom(bmc, 623)
		server, err := two.ListenPacket(at)
		require.NoError(t, err)
		_, err = client.WriteTo([]byte("question"), net.UDPAddrFromAddrPort(at))
		require.NoError(t, err)
		buf := make([]byte, 100)
		n, from, err := server.ReadFrom(buf)
		require.NoError(t, err)
		assert.Equal(t, "question", string(buf[:n]))
		assert.Equal(t, "10.0.0.1:5000", from.String())
		_, err = server.WriteTo([]byte("answer"), from)
		require.NoError(t, err)
		n, from, err = client.ReadFrom(buf)
		require.NoError(t, err)
		assert.Equal(t, "answer", string(buf[:n]))
		assert.Equal(t, at.String(), from.String(), "a BMC answers from where it was asked")
		require.NoError(t, server.Close())
	}
}

// TestNoWayOut: an address of another network is not even looked for on the wire.
func TestNoWayOut(t *testing.T) {
	s, one, _ := pair(t)
	_, err := one.Dial(patience(t), netip.MustParseAddrPort("8.8.8.8:53"))
	assert.ErrorContains(t, err, "unreachable")
	assert.Empty(t, s.Outside())
	_, err = one.Dial(patience(t), netip.MustParseAddrPort("[fe80::1]:53"))
	assert.ErrorContains(t, err, "IPv4")
}

func TestDialEndsWithItsContext(t *testing.T) {
	_, one, two := pair(t)
	echo(t, two, "10.0.0.2:22")
	two.Port().SetFault(vswitch.Fault{Cut: true})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := one.Dial(ctx, netip.MustParseAddrPort("10.0.0.2:22"))
	assert.Error(t, err)
	two.Port().SetFault(vswitch.Fault{})
	conn, err := one.Dial(patience(t), netip.MustParseAddrPort("10.0.0.2:22"))
	require.NoError(t, err, "the cable is in again")
	require.NoError(t, conn.Close())
}
