package firewall

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
)

func TestAListenerIsAtTheAddressesOfItsNetworks(t *testing.T) {
	networks := []status.Address{
		{Role: "provisioning", Addresses: []string{"172.22.0.1/24"}},
		{Role: "bmc", Addresses: []string{"10.30.0.2/24"}},
		{Role: "baremetal", Addresses: []string{"10.10.110.20/24", "fe80::1/64", "10.10.110.9/24"}},
	}
	s := new(site.Site)
	s.Networks.BMC = new(site.Network)
	at := func(name string) (list []string) {
		for _, addr := range Addresses(name, s, networks) {
			list = append(list, addr.String())
		}
		return list
	}
	assert.Equal(t, []string{"10.10.110.9", "10.10.110.20"}, at("page"), "on baremetal alone")
	s.Networks.BMC.Allow = []string{"ssh"}
	assert.Equal(t, []string{"10.10.110.9", "10.10.110.20"}, at("page"))
	s.Networks.BMC.Allow = []string{"page"}
	assert.Equal(t, []string{"10.10.110.9", "10.10.110.20", "10.30.0.2"}, at("page"), "and where the site says so")
	assert.Empty(t, at("metrics"), "nowhere but on the appliance itself")
	s.Networks.BMC.Allow = []string{"page", "metrics"}
	assert.Equal(t, []string{"10.30.0.2"}, at("metrics"))
	networks = networks[:1]
	assert.Empty(t, at("page"))
}
