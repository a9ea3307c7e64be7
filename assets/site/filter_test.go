package site

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatANetworkMayAllow(t *testing.T) {
	_, problems := Load("site.yaml", []byte(`
networks:
  provisioning:
    allow: [telnet, ssh, ssh]
    forward: [provisioning]
  baremetal:
    forward: [bmc, pods]
`))
	require.Error(t, problems.Err())
	assert.Equal(t, `site.yaml:4: networks.provisioning.allow[0]: "telnet" is not known; use one of: ssh, uploads, page, metrics, kubernetes
site.yaml:4: networks.provisioning.allow[2]: ssh is there already; give it once
site.yaml:5: networks.provisioning.forward[0]: machines of one network need no appliance between them; remove it
site.yaml:7: networks.baremetal.forward[0]: this site has no network bmc; add it, or remove this line
site.yaml:7: networks.baremetal.forward[1]: "pods" is not known; use one of: provisioning, bmc, baremetal`, problems.Err().Error())
}

func TestWhereAForeignServerMayBeIgnored(t *testing.T) {
	_, problems := Load("site.yaml", []byte(`
networks:
  provisioning:
    dhcp: {foreign: ignore-unknown}
  baremetal:
    interface: eno1
    cidr: 10.0.0.0/24
    dhcp: {foreign: silent}
`))
	require.Error(t, problems.Err())
	assert.Equal(t, `site.yaml:4: networks.provisioning.dhcp.foreign: a NIC on which another server answers is taken for baremetal; add interface or bond
site.yaml:8: networks.baremetal.dhcp.foreign: the appliance answers no DHCP here; remove the line`, problems.Err().Error())
	s, problems := Load("site.yaml", []byte("networks: {provisioning: {interface: eno2, dhcp: {foreign: ignore-unknown}}}"))
	require.NoError(t, problems.Err())
	assert.Equal(t, "ignore-unknown", s.WithDefaults().Networks.Provisioning.DHCP.Foreign)
}
