package dhcp

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/lease"
)

// Machines of the golden tests.
const (
	known    = "52:54:00:00:00:01" // reserved 172.22.0.11
	unpinned = "52:54:00:00:00:02" // known, without an address
	stranger = "52:54:00:00:00:99"
	barred   = "52:54:00:00:00:66" // the policy refuses it
	settled  = "52:54:00:00:00:67" // the policy lets it boot its disk
	secure   = "52:54:00:00:00:68" // the policy lets it boot, with Secure Boot
)

// policy is the Booter of the golden tests.
type policy struct{ bootAll }

func (p policy) Boot(ctx context.Context, m pxe.Machine) pxe.Boot {
	switch m.MAC.String() {
	case barred:
		return pxe.Boot{Action: pxe.ActionRefuse, Reason: "this machine is not in the site"}
	case settled:
		return pxe.Boot{Action: pxe.ActionDisk}
	case secure:
		b := p.bootAll.Boot(ctx, m)
		b.SecureBoot = true
		return b
	default:
		return p.bootAll.Boot(ctx, m)
	}
}

type exchange struct {
	name   string
	packet *dhcpv4.DHCPv4
	port   int
	proxy  bool
	leases []lease.Lease
}

func packet(mac string, t dhcpv4.MessageType, mods ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	p, err := dhcpv4.New()
	if err != nil {
		panic(err)
	}
	p.TransactionID = dhcpv4.TransactionID{1, 2, 3, 4}
	p.ClientHWAddr = mustMAC(mac)
	p.UpdateOption(dhcpv4.OptMessageType(t))
	p.UpdateOption(dhcpv4.OptParameterRequestList(dhcpv4.OptionSubnetMask, dhcpv4.OptionRouter, dhcpv4.OptionDomainNameServer, dhcpv4.OptionHostName,
		dhcpv4.OptionBootfileName, dhcpv4.OptionTFTPServerName, dhcpv4.OptionInterfaceMTU, dhcpv4.OptionNTPServers, dhcpv4.OptionDomainName))
	for _, m := range mods {
		m(p)
	}
	return p
}

func opt(o dhcpv4.Option) dhcpv4.Modifier { return dhcpv4.WithOption(o) }

func want(addr string) dhcpv4.Modifier {
	return opt(dhcpv4.OptRequestedIPAddress(netip.MustParseAddr(addr).AsSlice()))
}

func serverID(addr string) dhcpv4.Modifier {
	return opt(dhcpv4.OptServerIdentifier(netip.MustParseAddr(addr).AsSlice()))
}

func uses(addr string) dhcpv4.Modifier {
	return dhcpv4.WithClientIP(netip.MustParseAddr(addr).AsSlice())
}

func fromRelay(addr string) dhcpv4.Modifier {
	return func(p *dhcpv4.DHCPv4) {
		p.GatewayIPAddr = netip.MustParseAddr(addr).AsSlice()
		p.HopCount = 1
		p.UpdateOption(dhcpv4.OptRelayAgentInfo(dhcpv4.OptGeneric(dhcpv4.AgentCircuitIDSubOption, []byte("port 7"))))
	}
}

// firmwareOf is what a boot firmware adds: class, architecture, UUID.
func firmwareOf(class string, arch uint16) dhcpv4.Modifier {
	return func(p *dhcpv4.DHCPv4) {
		p.UpdateOption(dhcpv4.OptClassIdentifier(fmt.Sprintf("%s:Arch:%05d:UNDI:003016", class, arch)))
		p.UpdateOption(dhcpv4.OptClientArch(iana.Arch(arch)))
		id, _ := hex.DecodeString("0000112233445566778899aabbccddeeff")
		p.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionClientMachineIdentifier, id))
	}
}

func had(addr, mac string, state lease.State, ago, length time.Duration) lease.Lease {
	m, _ := lease.MACFrom(mustMAC(mac))
	s, _ := testConfig().subnetOf(netip.MustParseAddr(addr))
	return lease.Lease{Addr: netip.MustParseAddr(addr), MAC: m, Subnet: s.Prefix, State: state, Start: goldenNow - lease.Tick(ago), Duration: length}
}

const goldenNow = lease.Tick(24 * time.Hour)

func exchanges() []exchange {
	D, R := dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest
	full := make([]lease.Lease, 0, 50)
	for i := range 50 {
		full = append(full, had(fmt.Sprintf("172.22.1.%d", i+1), fmt.Sprintf("02:00:00:00:01:%02x", i), lease.Active, time.Minute, time.Hour))
	}
	mine := []lease.Lease{had("172.22.1.7", stranger, lease.Active, 30*time.Minute, time.Hour)}
	taken := []lease.Lease{had("172.22.1.7", "02:00:00:00:00:07", lease.Active, time.Minute, time.Hour)}
	ipxe := opt(dhcpv4.OptUserClass("iPXE"))
	all := []exchange{
		{name: "discover-plain", packet: packet(stranger, D)},
		{name: "discover-known", packet: packet(known, D)},
		{name: "discover-known-unpinned", packet: packet(unpinned, D)},
		{name: "discover-wish", packet: packet(stranger, D, want("172.22.1.20"))},
		{name: "discover-wish-reserved", packet: packet(stranger, D, want("172.22.0.11"))},
		{name: "discover-client-id", packet: packet(stranger, D, opt(dhcpv4.OptClientIdentifier([]byte{255, 1, 2, 3})))},
		{name: "discover-full-stranger", packet: packet(stranger, D), leases: full},
		{name: "discover-full-known", packet: packet(known, D), leases: full},
		{name: "discover-reserved-in-use", packet: packet(known, D), leases: []lease.Lease{had("172.22.0.11", stranger, lease.Active, time.Minute, time.Hour)}},
		{name: "discover-quarantined", packet: packet(stranger, D), leases: []lease.Lease{had("172.22.1.1", stranger, lease.Declined, time.Minute, time.Hour)}},
		{name: "discover-relay", packet: packet(stranger, D, fromRelay("10.20.0.1"))},
		{name: "discover-relay-unknown", packet: packet(stranger, D, fromRelay("192.0.2.1"))},
		{name: "discover-routes", packet: packet(stranger, D, dhcpv4.WithRequestedOptions(dhcpv4.OptionClasslessStaticRoute))},
		{name: "discover-relay-routes", packet: packet(stranger, D, fromRelay("10.20.0.1"), dhcpv4.WithRequestedOptions(dhcpv4.OptionClasslessStaticRoute))},
		{name: "request-selecting", packet: packet(stranger, R, serverID("172.22.0.1"), want("172.22.1.7"), opt(dhcpv4.OptHostName("node\"; x")))},
		{name: "request-selecting-taken", packet: packet(stranger, R, serverID("172.22.0.1"), want("172.22.1.7")), leases: taken},
		{name: "request-selecting-taken-firmware", packet: packet(stranger, R, serverID("172.22.0.1"), want("172.22.1.7"), firmwareOf("PXEClient", 7)), leases: taken},
		{name: "request-other-server", packet: packet(stranger, R, serverID("172.22.0.250"), want("172.22.1.7"))},
		{name: "request-init-reboot", packet: packet(stranger, R, want("172.22.1.7")), leases: mine},
		{name: "request-init-reboot-unknown", packet: packet(stranger, R, want("172.22.1.7"))},
		{name: "request-init-reboot-taken", packet: packet(stranger, R, want("172.22.1.7")), leases: taken},
		{name: "request-init-reboot-moved", packet: packet(stranger, R, want("192.168.1.7"))},
		{name: "request-init-reboot-moved-relay", packet: packet(stranger, R, want("172.22.1.7"), fromRelay("10.20.0.1"))},
		{name: "request-renew", packet: packet(stranger, R, uses("172.22.1.7")), leases: mine},
		{name: "request-renew-forgotten", packet: packet(stranger, R, uses("172.22.1.7"))},
		{name: "request-renew-taken", packet: packet(stranger, R, uses("172.22.1.7")), leases: taken},
		{name: "request-renew-now-reserved", packet: packet(stranger, R, uses("172.22.0.11")), leases: []lease.Lease{had("172.22.0.11", stranger, lease.Active, time.Minute, time.Hour)}},
		{name: "request-no-address", packet: packet(stranger, R)},
		{name: "request-duplicate-mac", packet: packet(stranger, R, uses("172.22.1.7"), firmwareOf("PXEClient", 7)), leases: withUUID(mine)},
		{name: "release", packet: packet(stranger, dhcpv4.MessageTypeRelease, uses("172.22.1.7")), leases: mine},
		{name: "release-not-its", packet: packet(stranger, dhcpv4.MessageTypeRelease, uses("172.22.1.7")), leases: taken},
		{name: "decline", packet: packet(stranger, dhcpv4.MessageTypeDecline, want("172.22.1.7")), leases: mine},
		{name: "decline-reserved", packet: packet(known, dhcpv4.MessageTypeDecline, want("172.22.0.11")), leases: []lease.Lease{had("172.22.0.11", known, lease.Active, time.Minute, time.Hour)}},
		{name: "decline-not-its", packet: packet(stranger, dhcpv4.MessageTypeDecline, want("172.22.1.7")), leases: taken},
		{name: "inform", packet: packet(stranger, dhcpv4.MessageTypeInform, uses("172.22.3.3"))},
		{name: "inform-elsewhere", packet: packet(stranger, dhcpv4.MessageTypeInform)},
		{name: "offer-to-server", packet: packet(stranger, dhcpv4.MessageTypeOffer)},
		{name: "ipxe", packet: packet(stranger, D, firmwareOf("PXEClient", 7), ipxe)},
		{name: "ipxe-option-175", packet: packet(stranger, D, firmwareOf("PXEClient", 0), opt(dhcpv4.OptGeneric(optIPXE, []byte{1, 1, 1})))},
		{name: "ipxe-user-class-rfc3004", packet: packet(stranger, D, firmwareOf("PXEClient", 0), opt(dhcpv4.OptRFC3004UserClass([]string{"iPXE"})))},
		{name: "ipxe-barred", packet: packet(barred, D, firmwareOf("PXEClient", 7), ipxe)},
		{name: "firmware-barred", packet: packet(barred, D, firmwareOf("PXEClient", 7))},
		{name: "firmware-settled", packet: packet(settled, D, firmwareOf("PXEClient", 7))},
		{name: "http-barred", packet: packet(barred, D, firmwareOf("HTTPClient", 16))},
		{name: "pxe-4011", packet: packet(stranger, R, firmwareOf("PXEClient", 0), uses("172.22.1.7")), port: PortPXE},
		{name: "pxe-4011-barred", packet: packet(barred, R, firmwareOf("PXEClient", 0), uses("172.22.1.7")), port: PortPXE},
		{name: "pxe-4011-release", packet: packet(stranger, dhcpv4.MessageTypeRelease, uses("172.22.1.7")), port: PortPXE},
		{name: "proxy-discover", packet: packet(stranger, D, firmwareOf("PXEClient", 7)), proxy: true},
		{name: "proxy-discover-http", packet: packet(stranger, D, firmwareOf("HTTPClient", 16)), proxy: true},
		{name: "proxy-discover-ipxe", packet: packet(stranger, D, firmwareOf("PXEClient", 7), ipxe), proxy: true},
		{name: "proxy-discover-plain", packet: packet(stranger, D), proxy: true},
		{name: "proxy-request", packet: packet(stranger, R, serverID("172.22.0.250"), want("172.22.1.7")), proxy: true},
	}
	all = append(all,
		exchange{name: "secure-ipxe", packet: packet(secure, D, firmwareOf("PXEClient", 7), ipxe)},
		exchange{name: "secure-4011", packet: packet(secure, R, firmwareOf("PXEClient", 7), uses("172.22.1.7")), port: PortPXE},
		exchange{name: "secure-proxy", packet: packet(secure, D, firmwareOf("PXEClient", 7)), proxy: true},
	)
	for _, arch := range []uint16{0, 7, 9, 11, 10} {
		all = append(all, exchange{name: fmt.Sprintf("secure-pxe-arch-%02d", arch), packet: packet(secure, D, firmwareOf("PXEClient", arch))})
	}
	for _, arch := range []uint16{16, 19} {
		all = append(all, exchange{name: fmt.Sprintf("secure-http-arch-%02d", arch), packet: packet(secure, D, firmwareOf("HTTPClient", arch))})
	}
	for _, arch := range []uint16{0, 6, 7, 9, 11, 10, 41} {
		all = append(all, exchange{name: fmt.Sprintf("pxe-arch-%02d", arch), packet: packet(stranger, D, firmwareOf("PXEClient", arch))})
	}
	for _, arch := range []uint16{15, 16, 19} {
		all = append(all, exchange{name: fmt.Sprintf("http-arch-%02d", arch), packet: packet(stranger, D, firmwareOf("HTTPClient", arch))})
	}
	return all
}

func withUUID(leases []lease.Lease) []lease.Lease {
	l := leases[0]
	l.UUID = "99999999-0000-0000-0000-000000000000"
	return []lease.Lease{l}
}

// TestGolden takes a packet in hex to what is answered, in text.
func TestGolden(t *testing.T) {
	for _, x := range exchanges() {
		t.Run(x.name, func(t *testing.T) {
			in := filepath.Join("testdata", "packets", x.name+".hex")
			if goldentest.IsUpdating() {
				require.NoError(t, os.WriteFile(in, []byte(hex.EncodeToString(x.packet.ToBytes())+"\n"), 0o644))
			}
			text, err := os.ReadFile(in)
			require.NoError(t, err)
			data, err := hex.DecodeString(strings.TrimSpace(string(text)))
			require.NoError(t, err)
			if x.port == 0 {
				x.port = PortServer
			}
			r, err := ParseRequest(data, x.port, netip.MustParseAddrPort("172.22.1.7:68"))
			require.NoError(t, err)
			plan, err := NewPlan(testConfig())
			require.NoError(t, err)
			a := Decide(t.Context(), plan, lease.NewTable(plan.Spaces(), x.leases), goldenNow, policy{}, x.proxy, r)
			goldentest.Check(t, "testdata/answers/"+x.name+".txt", describe(a))
		})
	}
}

func describe(a Answer) string {
	var b strings.Builder
	for _, e := range a.Events {
		fmt.Fprintf(&b, "event %s", e.Kind)
		for _, f := range []struct{ name, value string }{{"addr", text(e.Addr)}, {"file", e.File}, {"reason", string(e.Reason)}, {"text", e.Text}} {
			if f.value != "" {
				fmt.Fprintf(&b, " %s=%q", f.name, f.value)
			}
		}
		b.WriteByte('\n')
	}
	if a.Hold.IsValid() {
		fmt.Fprintf(&b, "hold %v\n", a.Hold)
	}
	if a.Unhold {
		b.WriteString("forget the offer\n")
	}
	if a.Put != nil {
		fmt.Fprintf(&b, "store %v %v %v for %v host=%q uuid=%q arch=%d\n", a.Put.State, a.Put.Addr, a.Put.MAC, a.Put.Duration, a.Put.Hostname, a.Put.UUID, a.Put.Arch)
	}
	if a.Declined != nil {
		fmt.Fprintf(&b, "put %v aside for %v if another machine answers for it\n", a.Declined.Addr, a.Declined.Duration)
	}
	if a.Reply == nil {
		b.WriteString("no reply\n")
		return b.String()
	}
	b.WriteString(strings.ReplaceAll(a.Reply.Summary(), " \n", "\n"))
	return b.String()
}

func text(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
