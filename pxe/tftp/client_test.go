package tftp_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// client speaks TFTP packet by packet, so that a test can do what no client should.
type client struct {
	t      testing.TB
	conn   *net.UDPConn
	server netip.AddrPort // where the last packet came from
	window int
	block  int
	lost   int // windows that had to be asked for again
}

func dial(t testing.TB, server netip.AddrPort) *client {
	return dialFrom(t, server, netip.MustParseAddr("127.0.0.1"))
}

// dialFrom is a client at another address.
func dialFrom(t testing.TB, server netip.AddrPort, addr netip.Addr) *client {
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &client{t: t, conn: conn, server: server, window: 1, block: 512}
}

// rrq is a read request with options as name, value, name, value.
func rrq(name string, options ...string) []byte {
	return []byte("\x00\x01" + name + "\x00octet\x00" + strings.Join(append(options, ""), "\x00"))
}

func (c *client) send(packet []byte) {
	_, err := c.conn.WriteToUDPAddrPort(packet, c.server)
	require.NoError(c.t, err)
}

// receive returns the next packet, or nil if none comes in time.
func (c *client) receive(wait time.Duration) []byte {
	require.NoError(c.t, c.conn.SetReadDeadline(time.Now().Add(wait)))
	buffer := make([]byte, 70000)
	n, from, err := c.conn.ReadFromUDPAddrPort(buffer)
	if err != nil {
		return nil
	}
	c.server = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	return buffer[:n]
}

// receiveAfter shows the next packet that is none of those before it: on a busy machine the server sends them again.
func (c *client) receiveAfter(before ...string) string {
	for {
		if got := show(c.receive(patience)); !slices.Contains(before, got) {
			return got
		}
	}
}

func ack(block uint16) []byte { return binary.BigEndian.AppendUint16([]byte{0, 4}, block) }

// show prints a packet for golden comparison.
func show(packet []byte) string {
	if len(packet) < 4 {
		return fmt.Sprintf("%q", packet)
	}
	switch packet[1] {
	case 3:
		return fmt.Sprintf("DATA %d, %d bytes", binary.BigEndian.Uint16(packet[2:]), len(packet)-4)
	case 5:
		return fmt.Sprintf("ERROR %d %s", packet[3], strings.TrimRight(string(packet[4:]), "\x00"))
	case 6:
		return "OACK " + strings.ReplaceAll(strings.TrimRight(string(packet[2:]), "\x00"), "\x00", " ")
	default:
		return fmt.Sprintf("%q", packet)
	}
}

// get loads a file as a patient client does: it confirms what came in order, and again
// after silence. between, if any, is called after every DATA.
func (c *client) get(request []byte, between func(block int)) []byte {
	c.send(request)
	var data []byte
	last, begun := 0, false
	for silent, since := 0, 0; ; {
		packet := c.receive(300 * time.Millisecond)
		if packet == nil {
			silent++
			require.Less(c.t, silent, 200, "the server fell silent after block %d", last)
			c.lost++
			if begun {
				c.send(ack(uint16(last)))
			} else {
				c.send(request)
			}
			continue
		}
		silent = 0
		switch packet[1] {
		case 6:
			begun = true
			c.send(ack(0))
		case 3:
			begun = true
			number := binary.BigEndian.Uint16(packet[2:])
			if number != uint16(last+1) {
				if since++; since == c.window { // one complaint per window (RFC 7440, 4)
					since = 0
					c.send(ack(uint16(last)))
				}
				continue
			}
			last++
			data = append(data, packet[4:]...)
			end := len(packet)-4 < c.block
			if last%c.window == 0 || end {
				since = 0
				c.send(ack(uint16(last)))
			}
			if between != nil {
				between(last)
			}
			if end {
				return data
			}
		default:
			require.Fail(c.t, "unexpected packet", show(packet))
		}
	}
}
