package capture

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/bpf"

	"firstlight.dev/firstlight/pxe"
)

var (
	appliance = mac{2, 0, 0, 0, 0, 1}
	node      = mac{0x52, 0x54, 0, 0, 0, 1}
	router    = mac{2, 0, 0, 0, 0, 9}
)

const pxeClass, osClass = "PXEClient:Arch:00007:UNDI:003016", "udhcp 1.37"

// frame is what is on the wire.
func frame(t testing.TB, from, to mac, src, dst string, payload []byte) []byte {
	t.Helper()
	s, d := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	ip := layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: s.Addr().AsSlice(), DstIP: d.Addr().AsSlice()}
	udp := layers.UDP{SrcPort: layers.UDPPort(s.Port()), DstPort: layers.UDPPort(d.Port())}
	require.NoError(t, udp.SetNetworkLayerForChecksum(&ip))
	b := gopacket.NewSerializeBuffer()
	require.NoError(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: from[:], DstMAC: to[:], EthernetType: layers.EthernetTypeIPv4}, &ip, &udp, gopacket.Payload(payload)))
	return b.Bytes()
}

func message(t testing.TB, kind dhcpv4.MessageType, more ...dhcpv4.Modifier) []byte {
	t.Helper()
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{dhcpv4.WithHwAddr(node[:]), dhcpv4.WithMessageType(kind)}, more...)...)
	require.NoError(t, err)
	return m.ToBytes()
}

func asks(t testing.TB, kind dhcpv4.MessageType, class string) []byte {
	return frame(t, node, mac{255, 255, 255, 255, 255, 255}, "0.0.0.0:68", "255.255.255.255:67", message(t, kind, dhcpv4.WithOption(dhcpv4.OptClassIdentifier(class))))
}

func asksAsIPXE(t testing.TB, kind dhcpv4.MessageType) []byte {
	return frame(t, node, mac{255, 255, 255, 255, 255, 255}, "0.0.0.0:68", "255.255.255.255:67",
		message(t, kind, dhcpv4.WithOption(dhcpv4.OptClassIdentifier(pxeClass)), dhcpv4.WithUserClass("iPXE", false)))
}

func answers(t testing.TB, kind dhcpv4.MessageType) []byte {
	return frame(t, appliance, node, "172.22.0.1:67", "172.22.0.10:68", message(t, kind, dhcpv4.WithYourIP(net.IP{172, 22, 0, 10}),
		func(m *dhcpv4.DHCPv4) { m.OpCode = dhcpv4.OpcodeBootReply }))
}

const transfer, client = "172.22.0.1:40000", "172.22.0.10:2070"

// block is a packet of a transfer; size counts the data.
func block(t testing.TB, operation, number uint16, size int) []byte {
	b := append(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, operation), number), bytes.Repeat([]byte("x"), size)...)
	if operation == tftpAck {
		return frame(t, node, appliance, client, transfer, b)
	}
	return frame(t, appliance, node, transfer, client, b)
}

func wants(t testing.TB) []byte {
	return frame(t, node, appliance, client, "172.22.0.1:69", []byte("\x00\x01snponly.efi\x00octet\x00blksize\x001468\x00"))
}

// TestTheKernelLetsThroughWhatIsKept and nothing else: the filter and understand agree.
func TestTheKernelLetsThroughWhatIsKept(t *testing.T) {
	filter, err := bpf.NewVM(kernelFilter)
	require.NoError(t, err)
	tcp := block(t, tftpError, 0, 10)
	tcp[23] = byte(layers.IPProtocolTCP)
	fragment := asks(t, dhcpv4.MessageTypeDiscover, pxeClass)
	fragment[21] = 8
	arp := asks(t, dhcpv4.MessageTypeDiscover, pxeClass)
	arp[13] = 6
	for name, c := range map[string]struct {
		frame []byte
		keep  int // 0: not at all
	}{
		"discover":       {asks(t, dhcpv4.MessageTypeDiscover, pxeClass), 9999},
		"ack":            {answers(t, dhcpv4.MessageTypeAck), 9999},
		"boot service":   {frame(t, node, appliance, "172.22.0.10:68", "172.22.0.1:4011", message(t, dhcpv4.MessageTypeRequest)), 9999},
		"its answer":     {frame(t, appliance, node, "172.22.0.1:4011", "172.22.0.10:9000", message(t, dhcpv4.MessageTypeAck)), 9999},
		"file":           {wants(t), 9999},
		"options":        {block(t, tftpOptions, 0x626c, 20), 9999},
		"error":          {block(t, tftpError, 1, 20), 9999},
		"first ack":      {block(t, tftpAck, 0, 0), 9999},
		"first block":    {block(t, tftpData, 1, 1468), dataLen},
		"second block":   {block(t, tftpData, 2, 1468), 0},
		"second ack":     {block(t, tftpAck, 2, 0), 0},
		"block of many":  {block(t, tftpData, 2048, 1468), dataLen},
		"last block":     {block(t, tftpData, 77, 100), dataLen},
		"whole block":    {block(t, tftpData, 77, 512), 0},
		"name service":   {frame(t, node, appliance, "172.22.0.10:5000", "172.22.0.1:53", []byte("\x12\x34\x01\x00question")), 0},
		"tcp":            {tcp, 0},
		"later fragment": {fragment, 0},
		"arp":            {arp, 0},
	} {
		passed, err := filter.Run(c.frame)
		require.NoError(t, err, name)
		p, kept := parsePacket(c.frame)
		assert.Equal(t, c.keep > 0, passed > 0, "the kernel: %s", name)
		if passed > 0 {
			assert.Equal(t, c.keep > 0, kept, name)
			assert.Equal(t, min(c.keep, len(c.frame)), p.keep, name)
		}
	}
}

func TestBegins(t *testing.T) {
	now := time.Unix(1e9, 0)
	discover := func(f pxe.Firmware) packet {
		m, err := dhcpv4.New(dhcpv4.WithMessageType(dhcpv4.MessageTypeDiscover))
		require.NoError(t, err)
		return packet{dhcp: m, firmware: f}
	}
	just := now.Add(-time.Second)
	for name, c := range map[string]struct {
		boot   *boot
		packet packet
		want   bool
	}{
		"the first":                            {nil, discover(pxe.FirmwarePXE), true},
		"iPXE from a ROM":                      {nil, discover(pxe.FirmwareIPXE), true},
		"HTTP boot":                            {nil, discover(pxe.FirmwareHTTPBoot), true},
		"an operating system":                  {nil, discover(pxe.FirmwareUnknown), false},
		"a file, the daemon just started":      {nil, packet{request: true}, true},
		"a block, the daemon just started":     {nil, packet{ongoing: true}, false},
		"asked again":                          {&boot{last: just, rank: 1}, discover(pxe.FirmwarePXE), false},
		"asked again after a lease":            {&boot{last: just, rank: 1, requested: true}, discover(pxe.FirmwarePXE), true},
		"iPXE after the firmware":              {&boot{last: just, rank: 1, requested: true}, discover(pxe.FirmwareIPXE), false},
		"the system after iPXE":                {&boot{last: just, rank: 2, requested: true}, discover(pxe.FirmwareUnknown), false},
		"firmware after iPXE":                  {&boot{last: just, rank: 2}, discover(pxe.FirmwarePXE), true},
		"iPXE after the system":                {&boot{last: just, rank: 3}, discover(pxe.FirmwareIPXE), true},
		"iPXE again after a lease":             {&boot{last: just, rank: 2, requested: true}, discover(pxe.FirmwareIPXE), true},
		"after a silence":                      {&boot{last: now.Add(-silence - 1), rank: 1}, discover(pxe.FirmwarePXE), true},
		"nobody answers, and the file is full": {&boot{last: just, rank: 1, bytes: maxFile}, discover(pxe.FirmwarePXE), true},
		"a second file":                        {&boot{last: just, rank: 1}, packet{request: true}, false},
	} {
		assert.Equal(t, c.want, startsBoot(c.boot, c.packet, now), name)
	}
}

func newBook(t *testing.T) *bootSorter {
	return &bootSorter{files: captureDir{dir: filepath.Join(t.TempDir(), "captures")}, ours: appliance, machines: map[mac]*boot{}}
}

// read is a capture as the library reads it.
func read(t *testing.T, path string) (all [][]byte) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	assert.EqualValues(t, 0o600, info.Mode().Perm())
	assert.LessOrEqual(t, info.Size(), int64(maxFile+snapLen+16))
	r, err := pcapgo.NewReader(f)
	require.NoError(t, err)
	require.Equal(t, layers.LinkTypeEthernet, r.LinkType())
	for {
		data, _, err := r.ReadPacketData()
		if err == io.EOF {
			return all
		}
		require.NoError(t, err)
		all = append(all, data)
	}
}

func TestTwoBootsAreTwoFiles(t *testing.T) {
	k, now := newBook(t), time.Unix(1e9, 0)
	see := func(frames ...[]byte) {
		for _, f := range frames {
			now = now.Add(time.Second)
			require.NoError(t, k.handlePacket(now, len(f), f))
		}
	}
	other := frame(t, appliance, node, "172.22.0.1:161", "172.22.0.10:5", []byte("\x00\x05 looks like an error of TFTP's"))
	first := [][]byte{
		asks(t, dhcpv4.MessageTypeDiscover, pxeClass), answers(t, dhcpv4.MessageTypeOffer), asks(t, dhcpv4.MessageTypeRequest, pxeClass), answers(t, dhcpv4.MessageTypeAck),
		wants(t), block(t, tftpOptions, 0x626c, 20), block(t, tftpAck, 0, 0), block(t, tftpData, 1, 1468), block(t, tftpAck, 1, 0), block(t, tftpData, 9, 17),
		asksAsIPXE(t, dhcpv4.MessageTypeDiscover), asksAsIPXE(t, dhcpv4.MessageTypeRequest), answers(t, dhcpv4.MessageTypeAck),
		asks(t, dhcpv4.MessageTypeDiscover, osClass),
	}
	see(asks(t, dhcpv4.MessageTypeDiscover, osClass)) // a system that runs: no boot
	see(first...)
	see(other)
	last, earlier := k.files.path(node, suffix), k.files.path(node, before)
	got := read(t, last)
	require.Len(t, got, len(first))
	for i := range first {
		assert.True(t, bytes.HasPrefix(first[i], got[i]), "packet %d", i)
	}
	assert.NoFileExists(t, earlier)

	see(asks(t, dhcpv4.MessageTypeDiscover, pxeClass))
	assert.Len(t, read(t, earlier), len(first))
	assert.Len(t, read(t, last), 1)
	now = now.Add(time.Hour)
	see(asks(t, dhcpv4.MessageTypeRequest, osClass)) // its system renews the address
	assert.Len(t, read(t, last), 1)

	// The daemon is started again: what is there stays.
	k.machines = map[mac]*boot{}
	see(asksAsIPXE(t, dhcpv4.MessageTypeDiscover))
	assert.Len(t, read(t, earlier), 1)
	assert.Len(t, read(t, last), 1)
}

// TestBehindARelay the frame names the router.
func TestBehindARelay(t *testing.T) {
	k, now := newBook(t), time.Unix(1e9, 0)
	rrq := wants(t)
	copy(rrq[6:], router[:])
	for _, f := range [][]byte{asks(t, dhcpv4.MessageTypeDiscover, pxeClass), answers(t, dhcpv4.MessageTypeAck), rrq} {
		require.NoError(t, k.handlePacket(now, len(f), f))
	}
	assert.Len(t, read(t, k.files.path(node, suffix)), 3)
}

func TestCapturesAreBounded(t *testing.T) {
	k, now := newBook(t), time.Unix(1e9, 0)
	f := asks(t, dhcpv4.MessageTypeDiscover, pxeClass)
	for range 3 * maxFile / len(f) { // nobody answers it
		require.NoError(t, k.handlePacket(now, len(f), f))
	}
	read(t, k.files.path(node, suffix))
	read(t, k.files.path(node, before))
	for n := range maxMachines + 20 { // strangers, or somebody who makes up addresses
		m := bytes.Clone(f)
		binary.BigEndian.PutUint16(m[14+20+8+28+4:], uint16(n+2)) // chaddr
		m[40], m[41] = 0, 0
		require.NoError(t, k.handlePacket(now.Add(time.Duration(n)), len(m), m))
	}
	entries, err := os.ReadDir(k.files.dir)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(entries), maxMachines+1)
	assert.Len(t, k.machines, maxMachines)
	assert.NoFileExists(t, k.files.path(node, suffix), "the oldest")
}

func TestWhatCannotBeWrittenIsSaid(t *testing.T) {
	k := newBook(t)
	require.NoError(t, os.WriteFile(k.files.dir, nil, 0o600))
	f := asks(t, dhcpv4.MessageTypeDiscover, pxeClass)
	assert.ErrorContains(t, k.handlePacket(time.Now(), len(f), f), "begin capture of 52:54:00:00:00:01: ")
}

func FuzzSee(f *testing.F) {
	f.Add(asks(f, dhcpv4.MessageTypeDiscover, pxeClass))
	f.Add(wants(f))
	f.Add(block(f, tftpData, 1, 20))
	filter, err := bpf.NewVM(kernelFilter)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = filter.Run(b)
		k := newBook(t)
		_ = k.handlePacket(time.Unix(1e9, 0), len(b), b)
	})
}
