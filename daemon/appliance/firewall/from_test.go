package firewall

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/site"
)

func TestWhatANetworkReaches(t *testing.T) {
	names := func(network string, s *site.Site) (list []string) {
		for _, l := range ListenersFrom(network, s) {
			list = append(list, l.Name)
		}
		return list
	}
	s := new(site.Site)
	assert.Empty(t, names("provisioning", s), "the site is not known")
	s.Networks.Provisioning = &site.Network{}
	assert.Equal(t, []string{"ssh", "dhcp", "pxe", "tftp", "boot", "registry", "ironic", "uploads", "time"}, names("provisioning", s))
	s.Networks.Baremetal = &site.Network{Address: netip.MustParseAddr("10.10.110.20")}
	s.Networks.BMC = &site.Network{}
	assert.Equal(t, []string{"dhcp"}, names("bmc", s))
	assert.Equal(t, []string{"ssh", "dhcp", "boot", "registry", "uploads", "page", "time"}, names("baremetal", s))

	s.Networks.BMC.Allow = []string{"page", "metrics"}
	s.Artifacts.S3 = true
	assert.Equal(t, []string{"dhcp", "page", "metrics"}, names("bmc", s))
	assert.Contains(t, names("baremetal", s), "s3")
}
