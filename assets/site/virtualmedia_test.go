package site

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestVirtualMediaIsRedfishWithADisc(t *testing.T) {
	for _, x := range []struct {
		address              BMCAddress
		disc, tls, isRedfish bool
		port                 int
	}{
		{address: "ipmi://10.0.0.5", port: 623},
		{address: "redfish://10.0.0.5/redfish/v1/Systems/1", port: 443, tls: true, isRedfish: true},
		{address: "redfish-virtualmedia://10.0.0.5/redfish/v1/Systems/1", port: 443, tls: true, disc: true, isRedfish: true},
		{address: "redfish-virtualmedia+https://10.0.0.5/redfish/v1/Systems/1", port: 443, tls: true, disc: true, isRedfish: true},
		{address: "redfish-virtualmedia+http://10.0.0.5/redfish/v1/Systems/1", port: 80, disc: true, isRedfish: true},
	} {
		var parsed BMCAddress
		require.NoError(t, parsed.ParseText(string(x.address)))
		assert.Equal(t, x.disc, parsed.HasVirtualMedia(), x.address)
		assert.Equal(t, x.tls, parsed.HasTLS(), x.address)
		assert.Equal(t, x.port, parsed.Port(), x.address)
		assert.Equal(t, x.isRedfish, parsed.IsRedfish(), x.address)
	}
}

// TestDiscsAreServedWhereTheBMCsAre, and a node that boots from one boots by the NIC that has its address.
func TestDiscsAreServedWhereTheBMCsAre(t *testing.T) {
	for _, x := range []struct{ networks, bmc, role, address string }{
		{`bmc: {interface: eno3, cidr: 10.30.0.0/24, address: 10.30.0.1}`, "10.30.0.11", "bmc", "10.30.0.1"},
		{`bmc: {interface: eno3, cidr: 10.30.0.0/24, address: 10.30.0.1, gateway: 10.30.0.254}`, "10.40.0.11", "bmc", "10.30.0.1"},
		{`baremetal: {interface: eno1, cidr: 10.10.110.0/24, address: 10.10.110.20}`, "10.10.110.101", "baremetal", "10.10.110.20"},
		{``, "172.22.0.2", "provisioning", "172.22.0.1"},
	} {
		s, problems := Load("site.yaml", []byte("networks: {"+x.networks+"}\nnodes:\n  - name: other\n    macs: [\"52:54:00:00:00:09\"]\n"+
			"  - name: node-1\n    macs: [\"52:54:00:00:00:01\", \"52:54:00:00:00:02\"]\n    bmc: {address: \"redfish-virtualmedia://"+
			x.bmc+"/redfish/v1/Systems/1\", username: a, password: b}\n"+
			"    links: [{network: provisioning, mac: \"52:54:00:00:00:02\", address: 172.22.0.201/24}]\n"))
		require.Empty(t, problems, x.networks)
		d := s.WithDefaults()
		assert.Equal(t, x.role, d.DiscNetwork(), x.networks)
		assert.Equal(t, x.address, d.DiscAddress().String(), x.networks)
		assert.Equal(t, MAC("52:54:00:00:00:02"), d.Nodes[1].BootMAC)
		l, ok := d.Nodes[1].DiscLink()
		assert.True(t, ok)
		assert.Equal(t, "172.22.0.201/24", l.Address.Prefix.String())
		_, ok = d.Nodes[0].DiscLink()
		assert.False(t, ok)
	}
	assert.Empty(t, new(Site).WithDefaults().DiscNetwork())
	assert.False(t, new(Site).WithDefaults().DiscAddress().IsValid())
}
