package netprobe

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
)

func TestToward(t *testing.T) {
	legs := []LocalAddr{
		{"provisioning", netip.MustParsePrefix("172.22.0.1/24")},
		{"baremetal", netip.MustParsePrefix("10.0.0.7/8")},
		{"bmc", netip.MustParsePrefix("10.30.0.2/24")},
	}
	for addr, want := range map[string]string{
		"172.22.0.150": "provisioning", "10.9.1.1": "baremetal", "10.30.0.101": "bmc", "192.0.2.1": "", "2001:db8::1": "",
	} {
		assert.Equal(t, want, InterfaceFor(legs, netip.MustParseAddr(addr)), addr)
	}
	assert.True(t, IsLocal(legs, netip.MustParseAddr("10.30.0.2")))
	assert.False(t, IsLocal(legs, netip.MustParseAddr("10.30.0.3")))
}

// resolverSays answers every query on an address of its own.
func resolverSays(t *testing.T, answer func(query []byte) []byte) netip.AddrPort {
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	go func() {
		for buf := make([]byte, 1500); ; {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if a := answer(buf[:n]); a != nil {
				conn.WriteTo(a, from)
			}
		}
	}()
	return netip.MustParseAddrPort(conn.LocalAddr().String())
}

func TestAQuestionIsOnePacketOfAShell(t *testing.T) {
	for range 2000 { // one of 128 ids has such an octet
		require.NotContains(t, string(NewQuestion().Packet()), "\n")
	}
}

func TestResolver(t *testing.T) {
	reply := func(code dnsmessage.RCode, id func(uint16) uint16) func([]byte) []byte {
		return func(query []byte) []byte {
			var p dnsmessage.Parser
			h, err := p.Start(query)
			if err != nil {
				return nil
			}
			m := dnsmessage.Message{Header: dnsmessage.Header{ID: id(h.ID), Response: true, RCode: code}}
			packet, _ := m.Pack()
			return packet
		}
	}
	same := func(id uint16) uint16 { return id }
	for _, c := range []struct {
		name   string
		answer func([]byte) []byte
		want   string
	}{
		{"answers", reply(dnsmessage.RCodeSuccess, same), ""},
		{"knows nothing", reply(dnsmessage.RCodeNameError, same), ""},
		{"has nobody to ask", reply(dnsmessage.RCodeServerFailure, same), ""},
		{"has nobody to ask, and is dnsmasq", reply(dnsmessage.RCodeRefused, same), ""},
		{"cannot answer", reply(dnsmessage.RCodeNotImplemented, same), "cannot answer"},
		{"answers another question", reply(dnsmessage.RCodeSuccess, func(id uint16) uint16 { return id + 1 }), "no resolver"},
		{"is no resolver", func([]byte) []byte { return []byte("hello") }, "no resolver"},
		{"is silent", func([]byte) []byte { return nil }, "does not answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := checkResolver(t.Context(), resolverSays(t, c.answer), 200*time.Millisecond)
			if c.want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, c.want)
			}
		})
	}
	closed, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	assert.ErrorContains(t, checkResolver(t.Context(), netip.MustParseAddrPort(closed.LocalAddr().String()), time.Second), "nothing answers DNS there")
}

func TestAResolverThatLosesPacketsIsAskedAgain(t *testing.T) {
	asked := 0
	at := resolverSays(t, func(query []byte) []byte {
		if asked++; asked < 3 {
			return nil
		}
		var p dnsmessage.Parser
		h, _ := p.Start(query)
		m := dnsmessage.Message{Header: dnsmessage.Header{ID: h.ID, Response: true}}
		packet, _ := m.Pack()
		return packet
	})
	assert.NoError(t, checkResolver(t.Context(), at, 200*time.Millisecond))
}

func FuzzAnswered(f *testing.F) {
	f.Add([]byte("hello"))
	f.Add(Question{7}.Packet())
	f.Fuzz(func(t *testing.T, packet []byte) {
		if (Question{7}).CheckAnswer(packet) == nil {
			if len(packet) < 12 || packet[0] != 0 || packet[1] != 7 || packet[2]&0x80 == 0 {
				t.Fatalf("% x was taken for an answer", packet)
			}
		}
	})
}
