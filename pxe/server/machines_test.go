package server_test

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/dhcp"
	"firstlight.dev/firstlight/pxe/server"
)

// elsewhere knows machines that another server gave their addresses.
type elsewhere struct{}

func (elsewhere) MachineAt(addr netip.Addr) (pxe.Machine, bool) {
	return pxe.Machine{MAC: net.HardwareAddr{0x52, 0x54, 0, 0, 0, 9}, Addr: addr}, true
}

// TestMachinesAreKnownByWhoGivesTheAddresses: by our leases where we do, and by nothing else then.
func TestMachinesAreKnownByWhoGivesTheAddresses(t *testing.T) {
	for name, c := range map[string]struct {
		dhcp *dhcp.Config
		want bool // that elsewhere is asked
	}{
		"no DHCP of ours":    {nil, true},
		"boot files only":    {&dhcp.Config{Mode: dhcp.ModeProxy}, true},
		"addresses are ours": {&dhcp.Config{LeaseDir: t.TempDir(), Subnets: []dhcp.Subnet{{Prefix: netip.MustParsePrefix("172.22.0.0/24")}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := server.New(server.Config{
				Interface: "lo", Addr: netip.MustParseAddr("172.22.0.1"), DHCP: c.dhcp,
				Booter: inspect{}, Machines: elsewhere{}, Log: slog.New(slog.DiscardHandler),
			})
			require.NoError(t, err)
			_, ok := s.MachineAt(netip.MustParseAddr("172.22.0.9"))
			assert.Equal(t, c.want, ok)
			require.NoError(t, s.Close())
		})
	}
}

// oneFixed has its address without DHCP.
type oneFixed struct{ addr netip.Addr }

func (o oneFixed) MachineAt(addr netip.Addr) (pxe.Machine, bool) {
	return pxe.Machine{MAC: net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}, Addr: addr}, addr == o.addr
}

// TestAMachineWithAFixedAddressIsKnown, whoever gives the other addresses.
func TestAMachineWithAFixedAddressIsKnown(t *testing.T) {
	fixed := netip.MustParseAddr("172.22.0.201")
	for name, c := range map[string]server.Config{
		"our DHCP":      {DHCP: &dhcp.Config{LeaseDir: t.TempDir(), Subnets: []dhcp.Subnet{{Prefix: netip.MustParsePrefix("172.22.0.0/24")}}}},
		"another's":     {Machines: elsewhere{}},
		"nobody's":      {},
		"boot programs": {DHCP: &dhcp.Config{Mode: dhcp.ModeProxy}, Machines: elsewhere{}},
	} {
		t.Run(name, func(t *testing.T) {
			c.Interface, c.Addr, c.Booter, c.Fixed = "lo", netip.MustParseAddr("172.22.0.1"), inspect{}, oneFixed{fixed}
			c.Log = slog.New(slog.DiscardHandler)
			s, err := server.New(c)
			require.NoError(t, err)
			m, ok := s.MachineAt(fixed)
			assert.True(t, ok)
			assert.Equal(t, "52:54:00:00:00:01", m.MAC.String())
			_, ok = s.MachineAt(netip.MustParseAddr("172.22.0.9"))
			assert.Equal(t, c.Machines != nil, ok)
			require.NoError(t, s.Close())
		})
	}
}
