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
	assert.Equal(t, `site.yaml:4: networks.provisioning.allow[0]: "telnet" is not known; use one of: ssh, uploads, kubernetes
site.yaml:4: networks.provisioning.allow[2]: ssh is there already; give it once
site.yaml:5: networks.provisioning.forward[0]: machines of one network need no appliance between them; remove it
site.yaml:7: networks.baremetal.forward[0]: this site has no network bmc; add it, or remove this line
site.yaml:7: networks.baremetal.forward[1]: "pods" is not known; use one of: provisioning, bmc, baremetal`, problems.Err().Error())
}
