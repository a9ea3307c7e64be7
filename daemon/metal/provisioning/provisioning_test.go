package provisioning

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
)

func TestRamdiskOfUnknownMachinesIsToldNoDeployment(t *testing.T) {
	s := (&site.Site{}).WithDefaults()
	p := New(Deps{Log: slog.New(slog.DiscardHandler), Site: func() *site.Site { return s }})
	for _, arg := range p.Ramdisk().Args {
		assert.NotContains(t, arg, "ipa-api-url", "with it the agent would ask Ironic for work")
	}
}

// TestByIPv6TheRamdiskIsToldItsAddress, and agents and pods reach the gate at different ones.
func TestByIPv6TheRamdiskIsToldItsAddress(t *testing.T) {
	s, problems := site.Load("site.yaml", []byte(`networks: {provisioning: {cidr: "fd00:22::/64"}}`))
	require.Empty(t, problems)
	s = s.WithDefaults()
	p := New(Deps{Log: slog.New(slog.DiscardHandler), Site: func() *site.Site { return s }})
	assert.Contains(t, p.Ramdisk().Args, "firstlight.address=${address}/64")
	assert.Contains(t, p.ironic().AgentURL(), "https://[fd00:22::1]:6385/")
	assert.Equal(t, "https://192.0.0.1:6385", p.ironic().Gate())
	assert.Len(t, gateAddrs(s), 2)
	assert.True(t, isInside(netip.MustParseAddr("192.0.0.1"), s))
	assert.False(t, isInside(netip.MustParseAddr("fd00:22::1"), s), "the kernel takes packets that claim it")

	s = new(site.Site).WithDefaults()
	for _, arg := range p.Ramdisk().Args {
		assert.NotContains(t, arg, "firstlight.address")
	}
	assert.Len(t, gateAddrs(s), 1)
	assert.Equal(t, p.ironic().Gate()+"/b/${token}", p.ironic().AgentURL())
}

// TestTheSiteSaysWhoBootsSignedPrograms before a machine is a host: its node, else nodeDefaults.
func TestTheSiteSaysWhoBootsSignedPrograms(t *testing.T) {
	for defaults, unknown := range map[string]bool{"UEFISecureBoot": true, "UEFI": false, "": false} {
		s := (&site.Site{NodeDefaults: site.NodeDefaults{BootMode: defaults}, Nodes: []site.Node{
			{Name: "secure", MACs: []site.MAC{"52:54:00:00:00:01", "52:54:00:00:00:11"}, BootMode: "UEFISecureBoot"},
			{Name: "plain", MACs: []site.MAC{"52:54:00:00:00:02"}, BootMode: "UEFI"},
		}}).WithDefaults()
		p := New(Deps{Log: slog.New(slog.DiscardHandler), Site: func() *site.Site { return s }})
		for mac, want := range map[string]bool{
			"52:54:00:00:00:01": true,
			"52:54:00:00:00:11": true,
			"52:54:00:00:00:02": false,
			"52:54:00:00:00:03": unknown,
		} {
			assert.Equal(t, want, p.Hosts.BootsSecurely(mac), "%s, by default %q", mac, defaults)
		}
	}
}
