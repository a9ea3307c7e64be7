package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/insomniacslk/dhcp/dhcpv4"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/dhcp"
)

// Protocol is what a machine asks by.
type Protocol string

// The protocols that are captured. The boot service is PXE's own, at port 4011 (PXE 2.1, 2.2.3).
const (
	DHCP        Protocol = "DHCP"
	BootService Protocol = "PXE boot service"
	TFTP        Protocol = "TFTP"
)

// Kind is what a packet is: a message of DHCP by its name (RFC 2132, 9.6), or one of these of TFTP (RFC 1350, 2347).
type Kind string

// The kinds by which whoever reads an Exchange distinguishes.
const (
	Discover Kind = "DISCOVER"
	Offer    Kind = "OFFER"
	Request  Kind = "REQUEST"
	Ack      Kind = "ACK"
	Nak      Kind = "NAK"

	Read    Kind = "RRQ"
	Write   Kind = "WRQ"
	Options Kind = "OACK"
	Data    Kind = "DATA"
	Failure Kind = "ERROR"
)

// Exchange is a question of a machine with what it was answered, as both were on the wire.
type Exchange struct {
	Time     time.Time // of the question, or of the first answer
	Protocol Protocol
	Kind     Kind         // of the question
	Count    int          // how often it was asked; 0: the question is not in the capture
	Program  pxe.Firmware // that asks, of DHCP
	File     string       // that is asked for, of TFTP
	GaveUp   string       // why the machine ended a transfer; "": it did not
	Answers  []Answer
}

// Answer is what one server said, however often.
type Answer struct {
	Time   time.Time // of the first
	Server netip.Addr
	Kind   Kind
	Addr   netip.Addr // that is given, of DHCP; may be invalid
	File   string     // boot program that is named, of DHCP
	Size   int64      // of the file, in bytes, of TFTP; 0: it was not said
	Text   string     // why it is refused
}

// maxText is how much of a name or a reason is kept, in bytes: whoever sends one may be anybody.
const maxText = 200

// ReadBoot reads the capture of a machine's last boot from the folder that a Recorder writes to: its exchanges in the
// order in which they began. There are none without a capture. What was read before an error is returned with it.
func ReadBoot(dir string, who net.HardwareAddr) ([]Exchange, error) {
	if len(who) != len(mac{}) {
		return nil, nil // no Ethernet
	}
	f, err := os.Open(captureDir{dir: dir}.path(mac(who), suffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read capture of %s: %w", who, err)
	}
	defer f.Close()

	all, err := readExchanges(io.LimitReader(f, 2*maxFile))
	if err != nil {
		return all, fmt.Errorf("read capture of %s: %w", who, err)
	}
	return all, nil
}

// readExchanges reads a file in pcap's format.
func readExchanges(r io.Reader) ([]Exchange, error) {
	in, err := pcapgo.NewReader(r)
	if err != nil {
		return nil, err
	}

	var p pairing
	for {
		frame, info, err := in.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return p.all, nil
		}
		if err != nil {
			return p.all, err
		}
		if packet, ok := parsePacket(frame); ok {
			p.add(info.Timestamp, packet)
		}
	}
}

// pairing finds the question of each answer.
type pairing struct {
	all []Exchange
	of  []key // of those, in the same order
}

// key is what a question and its answers have in common.
type key struct {
	id     dhcpv4.TransactionID
	client netip.AddrPort // of TFTP
}

func (p *pairing) add(at time.Time, packet packet) {
	switch {
	case packet.dhcp == nil:
		p.addTFTP(at, packet)
	case packet.dhcp.OpCode == dhcpv4.OpcodeBootRequest:
		e := Exchange{Protocol: protocolOf(packet), Kind: kindOf(packet.dhcp), Program: packet.firmware}
		p.ask(at, key{id: packet.dhcp.TransactionID}, e)
	default:
		p.addReply(at, packet)
	}
}

// ask adds a question, or counts one that is asked again.
func (p *pairing) ask(at time.Time, k key, e Exchange) {
	if i := p.last(k, e.Protocol); i >= 0 && p.all[i].Kind == e.Kind && p.all[i].File == e.File {
		p.all[i].Count++
		return
	}
	e.Time, e.Count = at, 1
	p.begin(k, e)
}

func (p *pairing) begin(k key, e Exchange) {
	p.all, p.of = append(p.all, e), append(p.of, k)
}

// last is the exchange that began last of those of a key and, if any is named, of the kinds; -1: there is none.
func (p *pairing) last(k key, of Protocol, kinds ...Kind) int {
	for i := len(p.all) - 1; i >= 0; i-- {
		if p.of[i] != k || p.all[i].Protocol != of {
			continue
		}
		if len(kinds) == 0 {
			return i
		}
		for _, kind := range kinds {
			if p.all[i].Kind == kind {
				return i
			}
		}
	}
	return -1
}

// addReply adds an answer by DHCP, by whichever server.
func (p *pairing) addReply(at time.Time, packet packet) {
	m, k, of := packet.dhcp, key{id: packet.dhcp.TransactionID}, protocolOf(packet)
	a := Answer{
		Time:   at,
		Server: packet.src.Addr(),
		Kind:   kindOf(m),
		File:   clean(m.BootFileName),
		Text:   clean(m.Message()),
	}
	if file := m.BootFileNameOption(); file != "" {
		a.File = clean(file)
	}
	// Behind a relay the packet is the relay's (RFC 2132, 9.7).
	if server, ok := netip.AddrFromSlice(m.ServerIdentifier().To4()); ok {
		a.Server = server
	}
	if addr, ok := netip.AddrFromSlice(m.YourIPAddr.To4()); ok && !addr.IsUnspecified() {
		a.Addr = addr
	}

	i := -1
	if a.Kind == Offer {
		i = p.last(k, of, Discover)
	}
	if i < 0 {
		i = p.last(k, of)
	}
	if i < 0 {
		i = len(p.all)
		p.begin(k, Exchange{Time: at, Protocol: of})
	}
	p.answer(i, a)
}

// addTFTP adds a packet of a transfer: of a machine, which is who has the port that the request came from, or for it.
func (p *pairing) addTFTP(at time.Time, packet packet) {
	if packet.request {
		e := Exchange{Protocol: TFTP, Kind: Read}
		if len(packet.payload) > 1 && packet.payload[1] == 2 {
			e.Kind = Write
		}
		if len(packet.payload) > 2 {
			name, _, _ := bytes.Cut(packet.payload[2:], []byte{0})
			e.File = clean(string(name))
		}
		p.ask(at, key{client: packet.src}, e)
		return
	}

	operation, rest := binary.BigEndian.Uint16(packet.payload), packet.payload[2:]
	if i := p.last(key{client: packet.src}, TFTP); i >= 0 {
		if operation == tftpError {
			p.all[i].GaveUp = errorText(rest)
		}
		return
	}

	i := p.last(key{client: packet.dst}, TFTP)
	if i < 0 {
		return
	}
	a := Answer{Time: at, Server: packet.src.Addr()}
	switch operation {
	case tftpOptions:
		a.Kind, a.Size = Options, sizeOption(rest)
	case tftpData:
		a.Kind = Data
	case tftpError:
		a.Kind, a.Text = Failure, errorText(rest)
	default:
		return
	}
	p.answer(i, a)
}

// answer adds an answer, unless the server has said the same.
func (p *pairing) answer(i int, a Answer) {
	for _, b := range p.all[i].Answers {
		b.Time = a.Time
		if b == a {
			return
		}
	}
	p.all[i].Answers = append(p.all[i].Answers, a)
}

func protocolOf(packet packet) Protocol {
	if packet.src.Port() == dhcp.PortPXE || packet.dst.Port() == dhcp.PortPXE {
		return BootService
	}
	return DHCP
}

func kindOf(m *dhcpv4.DHCPv4) Kind { return Kind(clean(strings.ToUpper(m.MessageType().String()))) }

// errorText is the message of an error (RFC 1350, 5), or else its number; it is never empty.
func errorText(rest []byte) string {
	code := binary.BigEndian.Uint16(rest)
	text, _, _ := bytes.Cut(rest[2:], []byte{0})
	if said := clean(string(text)); said != "" {
		return said
	}
	return fmt.Sprintf("error %d", code)
}

// sizeOption is the size of the file in an acknowledgement of options (RFC 2349), in bytes; 0 if it is not there.
func sizeOption(rest []byte) int64 {
	words := strings.Split(string(rest), "\x00")
	for i := 0; i+1 < len(words); i += 2 {
		if strings.EqualFold(words[i], "tsize") {
			n, _ := strconv.ParseInt(words[i+1], 10, 64) // 0: it is no number
			return max(0, n)
		}
	}
	return 0
}

// clean is a line of what somebody sent, without what a terminal would obey.
func clean(text string) string {
	printable := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || unicode.IsSpace(r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(text, ""))
	return excerpt.Start(excerpt.Line(printable), maxText)
}
