package virtualrack

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/image/lab/redfish"
)

// cable is the end of a machine's cable that QEMU holds, as a connection that IPv4 packets are broadcast by.
type cable struct {
	net.Conn
	in *bufio.Reader
}

func (c cable) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		var size [4]byte
		if _, err := io.ReadFull(c.in, size[:]); err != nil {
			return 0, nil, err
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(c.in, frame); err != nil {
			return 0, nil, err
		}
		if len(frame) > 14 && binary.BigEndian.Uint16(frame[12:]) == 0x0800 {
			return copy(b, frame[14:]), nil, nil
		}
	}
}

func (c cable) WriteTo(b []byte, _ net.Addr) (int, error) {
	frame := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, macOf(0, 2)...)
	frame = append(append(frame, 0x08, 0x00), b...)
	_, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
	return len(b), err
}

// serveLeases gives every machine that asks on the bmc network what it wishes for, in the appliance's place.
func serveLeases(t *testing.T, dir string) {
	t.Helper()
	at, err := os.Open(filepath.Join(dir, portsDir)) // a socket's name is short
	require.NoError(t, err)
	defer at.Close()
	conn, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/appliance-1", at.Fd()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	server := nclient4.NewBroadcastUDPConn(cable{conn, bufio.NewReader(conn)}, &net.UDPAddr{Port: nclient4.ServerPort})
	own := net.IP(addressOf(bmcs, applianceHost).AsSlice())
	go func() {
		for {
			packet := make([]byte, 2048)
			n, _, err := server.ReadFrom(packet)
			if err != nil {
				return
			}
			request, err := dhcpv4.FromBytes(packet[:n])
			if err != nil {
				continue
			}
			kind := dhcpv4.MessageTypeAck
			if request.MessageType() == dhcpv4.MessageTypeDiscover {
				kind = dhcpv4.MessageTypeOffer
			}
			answer, err := dhcpv4.NewReplyFromRequest(request, dhcpv4.WithMessageType(kind),
				dhcpv4.WithYourIP(request.RequestedIPAddress()), dhcpv4.WithServerIP(own),
				dhcpv4.WithOption(dhcpv4.OptServerIdentifier(own)), dhcpv4.WithNetmask(net.CIDRMask(24, 32)), dhcpv4.WithLeaseTime(3600))
			if err == nil {
				_, _ = server.WriteTo(answer.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: nclient4.ClientPort})
			}
		}
	}()
}

// TestBMCsOfADiscoveredRackLeaseTheirAddresses: nobody answers at them before, and each is a machine of its own
// afterwards. The system of a node with IPMI learns the address that its BMC has.
func TestBMCsOfADiscoveredRackLeaseTheirAddresses(t *testing.T) {
	o := DefaultOrder()
	o.Discover, o.BMC = true, MixedBMCs
	c := newRackOf(t, o)
	c.mustStart(t)
	_, err := c.Dial(t.Context(), "172.23.0.102", "443")
	require.Error(t, err, "it has an address that nobody gave it")

	serveLeases(t, c.Dir)
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialTLS: func(string, string) (net.Conn, error) {
		conn, err := c.Dial(t.Context(), "172.23.0.102", "443")
		if err != nil {
			return nil, err
		}
		return tls.Client(conn, &tls.Config{InsecureSkipVerify: true}), nil
	}, DisableKeepAlives: true}}
	made, err := readRackDoc(c.Dir)
	require.NoError(t, err)
	var text []byte
	require.Eventually(t, func() bool {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://bmc"+redfish.SystemPath, nil)
		require.NoError(t, err)
		r.SetBasicAuth(bmcUser, made.Password)
		response, err := client.Do(r)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		text, err = io.ReadAll(response.Body)
		return err == nil && response.StatusCode == http.StatusOK
	}, 2*time.Minute, 100*time.Millisecond)
	assert.Contains(t, string(text), `"SerialNumber":"node-2"`)

	require.Eventually(t, func() bool {
		log, err := os.ReadFile(filepath.Join(c.Dir, supervisorLog))
		require.NoError(t, err)
		return strings.Count(string(log), "BMC leased an address") == 2
	}, 2*time.Minute, 100*time.Millisecond)
	address, err := os.ReadFile(filepath.Join(c.Dir, machinesDir, "node-1", "bmc", "address"))
	require.NoError(t, err)
	assert.Equal(t, "172.23.0.101\n", string(address))
	emulator, err := os.ReadFile(filepath.Join(c.Dir, machinesDir, "node-1", "bmc", "sim.emu"))
	require.NoError(t, err)
	assert.Contains(t, string(emulator), "mc_add_fru_data")

	require.NoError(t, c.Press(t.Context(), "node-1", "on"))
	m := c.becomes(t, 1, "it is on", func(m Machine) bool { return m.On })
	assert.Contains(t, m.Command, "-smbios type=1,serial=node-1")
	assert.Contains(t, m.Command, "isa-ipmi-kcs")
}

// TestAddressesOfDiscoveredNodes: they are leased, so the appliance knows them.
func TestAddressesOfDiscoveredNodes(t *testing.T) {
	o := DefaultOrder()
	o.Discover = true
	s := &supervisor{rack: Plan(o)}
	node := s.rack.Nodes[0]
	assert.Equal(t, node.Address, s.addressOf(node))
	s.doc = &status.Document{Nodes: []status.Node{{Name: "node-2", Address: "172.22.0.30"}, {Name: "node-1", Address: "172.22.0.31"}}}
	assert.Equal(t, netip.MustParseAddr("172.22.0.31"), s.addressOf(node))
	s.doc.Nodes[1].Address = "" // not installed yet
	assert.Equal(t, node.Address, s.addressOf(node))
}

// TestADiscoveredRackIsNotOverBeforeAllAreFound: what there is may be verified long before.
func TestADiscoveredRackIsNotOverBeforeAllAreFound(t *testing.T) {
	o := DefaultOrder()
	o.Discover, o.Cluster = true, false
	doc := &status.Document{
		Launch: status.Launch{State: status.LaunchSucceeded, Text: "1 of 1"}, Nodes: []status.Node{{Name: "node-1", Verified: true}},
	}
	over, _, _ := rackOutcome(doc, o)
	assert.False(t, over)
	doc.Nodes = append(doc.Nodes, status.Node{Name: "node-2", Verified: true})
	over, failed, _ := rackOutcome(doc, o)
	assert.True(t, over && !failed)
}
