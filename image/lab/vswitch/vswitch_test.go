package vswitch

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Machines of the tests: their Ethernet addresses.
var (
	everybody = mac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	a         = mac{0x52, 0x54, 0, 0, 0, 0xa}
	b         = mac{0x52, 0x54, 0, 0, 0, 0xb}
	c         = mac{0x52, 0x54, 0, 0, 0, 0xc}
)

func frame(to, from mac, text string) []byte {
	f := append(append([]byte(nil), to[:]...), from[:]...)
	return append(append(f, 0x88, 0xb5), text...) // an experimental type (IEEE 802)
}

// ear is a port and what it hears.
type ear struct {
	*Port
	heard chan string
}

func plug(t *testing.T, s *Switch, name string) ear {
	e := ear{heard: make(chan string, queue)}
	var err error
	e.Port, err = s.Attach(name, func(f []byte) { e.heard <- string(f[headerBytes:]) })
	require.NoError(t, err)
	return e
}

// hears waits for a text; the deadline only ends a hung run.
func (e ear) hears(t *testing.T, text string) {
	t.Helper()
	select {
	case got := <-e.heard:
		assert.Equal(t, text, got, e.Name)
	case <-time.After(time.Minute):
		t.Fatalf("%s has heard nothing, wants %q", e.Name, text)
	}
}

// silent sends a last word to every ear and finds it the next one that each hears.
func silent(t *testing.T, from ear, source mac, ears ...ear) {
	t.Helper()
	from.Send(frame(everybody, source, "last word"))
	for _, e := range ears {
		e.hears(t, "last word")
	}
}

func newSwitch(t *testing.T, rack ...netip.Prefix) *Switch {
	s := New("test", rack...)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func TestLearns(t *testing.T) {
	s := newSwitch(t)
	pa, pb, pc := plug(t, s, "a"), plug(t, s, "b"), plug(t, s, "c")

	pa.Send(frame(b, a, "who is b"))
	pb.hears(t, "who is b")
	pc.hears(t, "who is b")

	pb.Send(frame(a, b, "me"))
	pa.hears(t, "me")
	pa.Send(frame(b, a, "to b alone"))
	pb.hears(t, "to b alone")
	silent(t, pa, a, pb, pc)

	// b moves to the port of c.
	pc.Send(frame(a, b, "moved"))
	pa.hears(t, "moved")
	pa.Send(frame(b, a, "there?"))
	pc.hears(t, "there?")
	silent(t, pa, a, pb, pc)

	// A frame for a machine on the sender's own port goes nowhere.
	pa.Send(frame(a, c, "c is behind a as well"))
	pa.Send(frame(c, a, "to a neighbour"))
	silent(t, pa, a, pb, pc)

	require.NoError(t, pc.Close())
	pa.Send(frame(b, a, "where is b now"))
	pb.hears(t, "where is b now")
}

func TestTableForgets(t *testing.T) {
	now := time.Unix(0, 0)
	p, q := &Port{Name: "p"}, &Port{Name: "q"}
	tab := table{}
	assert.Nil(t, tab.forward(p, frame(everybody, a, ""), now))
	assert.Same(t, p, tab.forward(q, frame(a, b, ""), now.Add(forgetAfter)))
	assert.Nil(t, tab.forward(q, frame(a, b, ""), now.Add(forgetAfter+1)))
	assert.Nil(t, tab.forward(p, frame(b, everybody, ""), now.Add(3*forgetAfter)))
	assert.NotContains(t, tab, everybody, "a group address is no source")
	for i := range 2 * largestTable {
		tab.forward(p, frame(everybody, mac{0, 1, 2, 3, byte(i >> 8), byte(i)}, ""), now)
	}
	assert.LessOrEqual(t, len(tab), largestTable)
	tab.forgetPort(p)
	assert.Empty(t, tab)
}

func TestFaults(t *testing.T) {
	s := newSwitch(t)
	pa, pb, pc := plug(t, s, "a"), plug(t, s, "b"), plug(t, s, "c")

	pb.SetFault(Fault{Cut: true})
	pa.Send(frame(everybody, a, "b is cut"))
	pc.hears(t, "b is cut")
	pb.Send(frame(everybody, b, "nobody hears me"))
	silent(t, pa, a, pc)

	pb.SetFault(Fault{Side: 1})
	pa.Send(frame(everybody, a, "on one side"))
	pc.hears(t, "on one side")
	pc.SetFault(Fault{Side: 1})
	pb.Send(frame(everybody, b, "on the other"))
	pc.hears(t, "on the other")

	pb.SetFault(Fault{})
	pc.SetFault(Fault{})
	silent(t, pa, a, pb, pc)

	pb.SetFault(Fault{Loss: 0.5})
	const sent = 1000
	for i := range sent {
		pa.Send(frame(everybody, a, fmt.Sprint(i)))
	}
	stats := pb.Stats()
	assert.InDelta(t, sent/2, len(pb.heard)+len(pb.out), sent/5)
	assert.InDelta(t, sent/2, stats.Lost, sent/5)
}

func TestDelayKeepsTheOrder(t *testing.T) {
	s := newSwitch(t)
	pa, pb := plug(t, s, "a"), plug(t, s, "b")
	pa.SetFault(Fault{Delay: 20 * time.Millisecond})
	pb.SetFault(Fault{Delay: 10 * time.Millisecond})
	began := time.Now()
	for i := range 100 {
		pa.Send(frame(everybody, a, fmt.Sprint(i)))
	}
	pa.SetFault(Fault{})
	pa.Send(frame(everybody, a, "overtakes"))
	pb.hears(t, "overtakes")
	for i := range 100 {
		pb.hears(t, fmt.Sprint(i))
	}
	assert.GreaterOrEqual(t, time.Since(began), 30*time.Millisecond)
	pb.SetFault(Fault{Delay: time.Hour})
	pa.Send(frame(everybody, a, "never"))
	require.NoError(t, s.Close(), "frames that are late hold nobody up")
	assert.ErrorContains(t, func() error { _, err := s.Attach("late", nil); return err }(), "closed")
}

// dial plugs a machine into a port as QEMU does.
func dial(t *testing.T, path string) net.Conn {
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func say(t *testing.T, conn net.Conn, f []byte) {
	_, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(f))), f...))
	require.NoError(t, err)
}

func hear(conn net.Conn) (string, error) {
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return "", err
	}
	f := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(conn, f)
	return string(f[headerBytes:]), err
}

func TestSockets(t *testing.T) {
	s := newSwitch(t)
	host := plug(t, s, "host")
	path := filepath.Join(t.TempDir(), "port")
	_, err := s.Listen("machine", path)
	require.NoError(t, err)

	one := dial(t, path)
	say(t, one, frame(everybody, a, "first life"))
	host.hears(t, "first life")
	host.Send(frame(a, b, "welcome"))
	got, err := hear(one)
	require.NoError(t, err)
	assert.Equal(t, "welcome", got)

	// The machine starts again: a new connection takes the place of the old one.
	two := dial(t, path)
	say(t, two, frame(everybody, a, "second life"))
	host.hears(t, "second life")
	_, err = hear(one)
	assert.ErrorIs(t, err, io.EOF)
	for i := range 100 {
		host.Send(frame(a, b, fmt.Sprint(i)))
	}
	for i := range 100 {
		got, err := hear(two)
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprint(i), got)
	}

	// What is no frame ends the connection, not the port.
	_, err = two.Write([]byte{0xff, 0xff, 0xff, 0xff, 0})
	require.NoError(t, err)
	_, err = hear(two)
	assert.ErrorIs(t, err, io.EOF)
	three := dial(t, path)
	say(t, three, []byte("runt"))
	say(t, three, frame(everybody, a, "third life"))
	host.hears(t, "third life")
}

func TestAMachineThatDoesNotReadStopsNobody(t *testing.T) {
	s := newSwitch(t)
	pa, pb := plug(t, s, "a"), plug(t, s, "b")
	path := filepath.Join(t.TempDir(), "port")
	deaf, err := s.Listen("deaf", path)
	require.NoError(t, err)
	conn := dial(t, path)
	say(t, conn, frame(everybody, c, "here"))
	pa.hears(t, "here")
	pb.hears(t, "here")
	big := strings.Repeat("x", 1400)
	for range 2 * queue {
		pa.Send(frame(everybody, a, big))
		pb.hears(t, big)
	}
	assert.Positive(t, deaf.Stats().Lost)
}

func TestOutside(t *testing.T) {
	rack := netip.MustParsePrefix("172.22.0.0/24")
	s := newSwitch(t, rack)
	p := plug(t, s, "p")
	for _, text := range []string{
		"ffffffffffff 525400000001 0800 4500001c 00000000 40110000 ac160065 08080808",                     // UDP to 8.8.8.8
		"525400000002 525400000001 0800 4500001c 00000000 40110000 ac160065 ac160001",                     // within
		"ffffffffffff 525400000001 0800 4500001c 00000000 40110000 00000000 ffffffff",                     // DHCP
		"ffffffffffff 525400000001 0806 0001 0800 06 04 0001 525400000001 ac160065 000000000000 c0a80001", // who has 192.168.0.1
		"333300000016 525400000001 86dd 60000000 00000000 fe80000000000000 5054 00fffe000001 ff02000000000000 0000000000000016",
		"525400000002 525400000001 8100 0005 0800 4500001c 00000000 40110000 ac160065 01010101", // tagged
		"525400000002 525400000001 0800 45",
	} {
		f, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
		require.NoError(t, err)
		p.Send(f)
	}
	assert.Equal(t, map[netip.Addr]int{netip.MustParseAddr("8.8.8.8"): 1, netip.MustParseAddr("192.168.0.1"): 1, netip.MustParseAddr("1.1.1.1"): 1}, s.Outside())
}

func TestCapture(t *testing.T) {
	s := newSwitch(t)
	p := plug(t, s, "p")
	path := filepath.Join(t.TempDir(), "wire.pcap")
	capture, err := CaptureTo(path)
	require.NoError(t, err)
	s.Capture(capture)
	whole := frame(everybody, a, strings.Repeat("y", 300))
	tcp := append(append([]byte(nil), b[:]...), a[:]...)
	tcp = append(tcp, 8, 0, 0x45, 0, 5, 0, 0, 0, 0, 0, 64, protoTCP)
	tcp = append(tcp, make([]byte, 1200)...)
	p.Send(whole)
	p.Send(tcp)
	s.Capture(nil)
	p.Send(frame(everybody, a, "not captured"))
	require.NoError(t, capture.Close())

	data, err := os.ReadFile(path)
	require.NoError(t, err)
	le := binary.LittleEndian
	assert.Equal(t, uint32(pcapMagic), le.Uint32(data))
	assert.Equal(t, uint32(pcapEthernet), le.Uint32(data[20:]))
	first := data[24:]
	assert.InDelta(t, time.Now().Unix(), le.Uint32(first), 600)
	assert.Equal(t, len(whole), int(le.Uint32(first[8:])))
	assert.Equal(t, whole, first[16:16+len(whole)])
	second := first[16+len(whole):]
	assert.Equal(t, tcpBytes, int(le.Uint32(second[8:])))
	assert.Equal(t, len(tcp), int(le.Uint32(second[12:])))
	assert.Equal(t, tcp[:tcpBytes], second[16:])
}

func FuzzFrames(f *testing.F) {
	f.Add(frame(everybody, a, "x"))
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x81, 0, 0, 1, 0x81, 0})
	s := New("fuzz")
	p, err := s.Attach("p", func([]byte) {})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, frame []byte) {
		p.Send(frame)
		kind, data := payload(frame)
		assert.LessOrEqual(t, len(data), len(frame), "type %x", kind)
		_ = destination(frame)
	})
}

func TestFaultsInWords(t *testing.T) {
	for want, f := range map[string]Fault{
		"is good":                 {},
		"is unplugged":            {Out: true},
		"is cut and is on side 1": {Cut: true, Side: 1},
		"loses 12.5 % of the frames and delays frames by 50ms": {Loss: 0.125, Delay: 50 * time.Millisecond},
	} {
		assert.Equal(t, want, f.String())
	}
}
