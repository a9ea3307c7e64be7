package dhcp

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// clientEnv makes this test binary a client in a namespace: "send" sends packets and
// prints replies, "watch" prints every DHCPACK on the cable.
const clientEnv = "FIRSTLIGHT_DHCP_CLIENT"

// sendLines sends "PORT WAIT HEX" lines to the server from port 67 of cli0, as a relay would, and prints the reply to
// each, or "none" after that time.
func sendLines(in io.Reader, out io.Writer) error {
	conn, err := listen("cli0", PortServer)
	if err != nil {
		return err
	}
	defer conn.Close()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	buf := make([]byte, 65536)
	for lines.Scan() {
		portText, text, _ := strings.Cut(lines.Text(), " ")
		port, err := strconv.ParseUint(portText, 10, 16)
		if err != nil {
			return err
		}
		waitText, text, _ := strings.Cut(text, " ")
		wait, err := time.ParseDuration(waitText)
		if err != nil {
			return err
		}
		data, err := hex.DecodeString(text)
		if err != nil {
			return err
		}
		if _, err := conn.WriteToUDPAddrPort(data, netip.AddrPortFrom(netip.MustParseAddr("172.22.0.1"), uint16(port))); err != nil {
			return err
		}
		if wait == 0 {
			fmt.Fprintln(out, "none")
			continue
		}
		if err := conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return err
		}
		fmt.Fprintln(out, readReply(conn, buf, transaction(data)))
	}
	return lines.Err()
}

// transaction is what a reply has in common with its request (RFC 2131, xid); "" of what is too short.
func transaction(packet []byte) string {
	if len(packet) < 8 {
		return ""
	}
	return string(packet[4:8])
}

// readReply returns the reply of a transaction in hex, or "none". The server's own probes are no replies, and one to an
// earlier packet may be late.
func readReply(conn *net.UDPConn, buf []byte, of string) string {
	for {
		n, _, err := conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return "none"
		}
		if n > 0 && buf[0] == byte(dhcpv4.OpcodeBootReply) && transaction(buf[:n]) == of {
			return hex.EncodeToString(buf[:n])
		}
	}
}

// watchAcks prints "MAC ADDRESS" for every DHCPACK that arrives at cli0.
func watchAcks(out io.Writer) error {
	ifi, err := net.InterfaceByName("cli0")
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(swap16(unix.ETH_P_IP)))
	if err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20); err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: swap16(unix.ETH_P_IP), Ifindex: ifi.Index}); err != nil {
		return err
	}
	fmt.Fprintln(out, "watching")
	buf := make([]byte, 4096)
	for {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if l, ok := from.(*unix.SockaddrLinklayer); !ok || l.Pkttype == unix.PACKET_OUTGOING || n < 28 {
			continue
		}
		p, err := dhcpv4.FromBytes(buf[28:n])
		if err == nil && p.MessageType() == dhcpv4.MessageTypeAck {
			fmt.Fprintln(out, p.ClientHWAddr, p.YourIPAddr)
		}
	}
}

// printProbe probes srv0.
func printProbe(out io.Writer) error {
	found, err := probe(context.Background(), "srv0", probeWait)
	fmt.Fprintln(out, len(found), "servers")
	for _, f := range found {
		fmt.Fprintln(out, f.Server, "at", f.MACText, "offers", f.Offered)
	}
	return err
}

// wirePacket is one packet for exchangeAll.
type wirePacket struct {
	port       int
	data       []byte
	unanswered bool // nobody waits for a reply
	maybe      bool // there may be no reply, and it is not waited for as one that must come
}

// Times to wait for a reply: one that must come on a slow machine, too, and one that may not come.
const (
	replyPatience   = 10 * time.Minute
	silencePatience = 2 * time.Second
)

// exchangeAll sends packets from the client namespace, which has 172.22.0.2, and returns
// the reply to each, nil where there was none.
func exchangeAll(t *testing.T, l lab, packets ...wirePacket) []*dhcpv4.DHCPv4 {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	var in strings.Builder
	for _, p := range packets {
		wait := replyPatience
		switch {
		case p.unanswered:
			wait = 0
		case p.maybe:
			wait = silencePatience
		}
		fmt.Fprintf(&in, "%d %s %x\n", p.port, wait, p.data)
	}
	cmd := exec.CommandContext(t.Context(), "ip", "netns", "exec", l.client, self)
	cmd.Env = append(os.Environ(), clientEnv+"=send")
	cmd.Stdin, cmd.Stderr = strings.NewReader(in.String()), os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	lines := strings.Fields(string(out))
	require.Len(t, lines, len(packets))
	replies := make([]*dhcpv4.DHCPv4, len(lines))
	for i, line := range lines {
		if line == "none" {
			continue
		}
		data, err := hex.DecodeString(line)
		require.NoError(t, err)
		replies[i], err = dhcpv4.FromBytes(data)
		require.NoError(t, err)
	}
	return replies
}

// relayed makes p come from the client namespace as if it relayed for its own network.
func relayed(p *dhcpv4.DHCPv4) wirePacket {
	p.GatewayIPAddr = net.IPv4(172, 22, 0, 2).To4()
	return wirePacket{port: PortServer, data: p.ToBytes()}
}
