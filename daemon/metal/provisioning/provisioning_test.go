package provisioning

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/site"
)

func TestRamdiskOfUnknownMachinesIsToldNoDeployment(t *testing.T) {
	s := (&site.Site{}).WithDefaults()
	p := New(Deps{Log: slog.New(slog.DiscardHandler), Site: func() *site.Site { return s }})
	for _, arg := range p.Ramdisk().Args {
		assert.NotContains(t, arg, "ipa-api-url", "with it the agent would ask Ironic for work")
	}
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
