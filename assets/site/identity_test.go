package site

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestServersWithoutAMACAreToldApart: what installation cannot tell apart is refused before; what Redfish names is not.
func TestServersWithoutAMACAreToldApart(t *testing.T) {
	_, problems := Load("site.yaml", []byte(`name: rack-7
nodes:
  - name: node-1
    bmc: {address: "ipmi://10.30.0.1:6230", username: admin, password: x}
  - name: node-2
    bmc: {address: "ipmi://10.30.0.1:6231", username: admin, password: x}
    macs: ["52:54:00:00:00:02"]
  - name: node-3
    bmc: {address: "ipmi://10.30.0.3", username: admin, password: x}
  - name: node-4
    bmc: {address: "redfish://10.30.0.4/redfish/v1/Systems/1", username: admin, password: x}
  - name: node-5
    bmc: {address: "redfish://10.30.0.4/redfish/v1/Systems/2", username: admin, password: x}
`))
	require.Len(t, problems, 1)
	assert.Equal(t, `site.yaml:3: nodes[0]: without macs it is found by the address of its BMC, and nodes[1] has "10.30.0.1" too; add macs`,
		problems[0].String())
}
