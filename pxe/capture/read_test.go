package capture

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe"
)

const other = "172.22.0.99"

// capture has a boot written as a Recorder writes it, a packet each second, and reads it.
func capture(t testing.TB, k *bootSorter, frames ...[]byte) []Exchange {
	t.Helper()
	for i, f := range frames {
		require.NoError(t, k.handlePacket(second(i), len(f), f))
	}
	all, err := ReadBoot(k.files.dir, node[:])
	require.NoError(t, err)
	return all
}

func second(i int) time.Time { return time.Unix(1e9+int64(i), 0).UTC() }

// conversation is a message of one conversation by DHCP, in which xid says which.
func conversation(xid byte, kind dhcpv4.MessageType, more ...dhcpv4.Modifier) []dhcpv4.Modifier {
	return append([]dhcpv4.Modifier{dhcpv4.WithTransactionID(dhcpv4.TransactionID{0, 0, 0, xid}), dhcpv4.WithMessageType(kind)}, more...)
}

func asked(t testing.TB, xid byte, kind dhcpv4.MessageType, class string) []byte {
	more := conversation(xid, kind, dhcpv4.WithOption(dhcpv4.OptClassIdentifier(class)))
	return frame(t, node, mac{255, 255, 255, 255, 255, 255}, "0.0.0.0:68", "255.255.255.255:67", message(t, kind, more...))
}

func answered(t testing.TB, xid byte, kind dhcpv4.MessageType, server string, more ...dhcpv4.Modifier) []byte {
	isReply := func(m *dhcpv4.DHCPv4) { m.OpCode = dhcpv4.OpcodeBootReply }
	more = append(conversation(xid, kind, isReply), more...)
	return frame(t, appliance, node, server+":67", "255.255.255.255:68", message(t, kind, more...))
}

func file(name string) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptBootFileName(name)) }

func TestABootIsReadAsQuestionsAndAnswers(t *testing.T) {
	ours, addr := netip.MustParseAddr("172.22.0.1"), netip.MustParseAddr("172.22.0.10")
	lease := dhcpv4.WithYourIP(addr.AsSlice())
	class := dhcpv4.WithOption(dhcpv4.OptClassIdentifier("PXEClient"))
	tsize := frame(t, appliance, node, transfer, client, []byte("\x00\x06blksize\x001468\x00tsize\x001048576\x00"))
	gone := frame(t, node, appliance, client, transfer, []byte("\x00\x05\x00\x00User aborted the transfer\x00"))
	got := capture(t, newBook(t),
		asked(t, 1, dhcpv4.MessageTypeDiscover, pxeClass),
		asked(t, 1, dhcpv4.MessageTypeDiscover, pxeClass),
		answered(t, 1, dhcpv4.MessageTypeOffer, "172.22.0.1", lease, class, file("snponly.efi")),
		answered(t, 1, dhcpv4.MessageTypeOffer, other, dhcpv4.WithYourIP(net.IP{10, 0, 0, 7}), dhcpv4.WithOption(dhcpv4.OptMessage("a\x1b[2J\nb"))),
		answered(t, 1, dhcpv4.MessageTypeOffer, "172.22.0.1", lease, class, file("snponly.efi")), // the same again
		asked(t, 1, dhcpv4.MessageTypeRequest, pxeClass),
		answered(t, 1, dhcpv4.MessageTypeAck, "172.22.0.1", lease, file("snponly.efi")),
		wants(t), tsize, block(t, tftpAck, 0, 0), block(t, tftpData, 1, 1468), block(t, tftpData, 9, 17), gone,
		asked(t, 2, dhcpv4.MessageTypeRequest, osClass),
		answered(t, 2, dhcpv4.MessageTypeNak, "172.22.0.250", dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IP{172, 22, 0, 1})),
			dhcpv4.WithOption(dhcpv4.OptMessage("wrong network"))), // by a relay
	)
	assert.Equal(t, []Exchange{
		{Time: second(0), Protocol: DHCP, Kind: Discover, Count: 2, Program: pxe.FirmwarePXE, Answers: []Answer{
			{Time: second(2), Server: ours, Kind: Offer, Addr: addr, File: "snponly.efi"},
			{Time: second(3), Server: netip.MustParseAddr(other), Kind: Offer, Addr: netip.MustParseAddr("10.0.0.7"), Text: "a[2J b"},
		}},
		{Time: second(5), Protocol: DHCP, Kind: Request, Count: 1, Program: pxe.FirmwarePXE, Answers: []Answer{
			{Time: second(6), Server: ours, Kind: Ack, Addr: addr, File: "snponly.efi"},
		}},
		{Time: second(7), Protocol: TFTP, Kind: Read, Count: 1, File: "snponly.efi", GaveUp: "User aborted the transfer", Answers: []Answer{
			{Time: second(8), Server: ours, Kind: Options, Size: 1 << 20},
			{Time: second(10), Server: ours, Kind: Data},
		}},
		{Time: second(13), Protocol: DHCP, Kind: Request, Count: 1, Answers: []Answer{
			{Time: second(14), Server: ours, Kind: Nak, Text: "wrong network"},
		}},
	}, got)
}

func TestWhatIsMissingInACaptureIsNotMadeUp(t *testing.T) {
	k := newBook(t)
	none, err := ReadBoot(k.files.dir, node[:])
	require.NoError(t, err)
	assert.Empty(t, none, "it never booted")
	none, err = ReadBoot(k.files.dir, net.HardwareAddr{1, 2})
	require.NoError(t, err)
	assert.Empty(t, none, "no MAC of Ethernet")

	// The daemon was started between question and answer.
	refused := frame(t, appliance, node, transfer, client, []byte("\x00\x05\x00\x01there is no such file\x00"))
	unnamed := frame(t, appliance, node, transfer, client, []byte("\x00\x05\x00\x02"))
	got := capture(t, k, wants(t), refused, unnamed, answered(t, 1, dhcpv4.MessageTypeAck, other),
		frame(t, node, appliance, "172.22.0.10:68", "172.22.0.1:4011", message(t, dhcpv4.MessageTypeRequest)))
	require.Len(t, got, 3)
	assert.Equal(t, []string{"there is no such file", "error 2"}, []string{got[0].Answers[0].Text, got[0].Answers[1].Text})
	assert.Equal(t, Failure, got[0].Answers[0].Kind)
	assert.Zero(t, got[1].Count)
	assert.Equal(t, Ack, got[1].Answers[0].Kind)
	assert.Equal(t, BootService, got[2].Protocol)
	assert.Empty(t, got[2].Answers)

	// The power failed while a packet was written: what is before it counts.
	path := k.files.path(node, suffix)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text[:len(text)-5], 0o600))
	got, err = ReadBoot(k.files.dir, node[:])
	assert.ErrorContains(t, err, "read capture of 52:54:00:00:00:01: ")
	assert.Len(t, got, 2)

	require.NoError(t, os.WriteFile(path, []byte("no capture at all, but long enough for one"), 0o600))
	got, err = ReadBoot(k.files.dir, node[:])
	assert.Error(t, err)
	assert.Empty(t, got)
}

// FuzzReadExchanges reads whatever is in a file.
func FuzzReadExchanges(f *testing.F) {
	k := &bootSorter{files: captureDir{dir: f.TempDir()}, ours: appliance, machines: map[mac]*boot{}}
	capture(f, k, asks(f, dhcpv4.MessageTypeDiscover, pxeClass), answers(f, dhcpv4.MessageTypeOffer), wants(f),
		block(f, tftpOptions, 0x626c, 20), block(f, tftpData, 1, 20))
	text, err := os.ReadFile(k.files.path(node, suffix))
	require.NoError(f, err)
	f.Add(text)
	f.Fuzz(func(t *testing.T, b []byte) {
		all, _ := readExchanges(bytes.NewReader(b)) // an error is an answer too
		for _, e := range all {
			assert.False(t, e.Count == 0 && len(e.Answers) == 0, "an exchange of nothing")
		}
	})
}
