package virtualrack

import (
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/bmc"
	"firstlight.dev/firstlight/image/lab/redfish"
)

// TestARackOfBeforeAnyoneCouldAsk is one with IPMI.
func TestARackOfBeforeAnyoneCouldAsk(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, rackFile), []byte(`{"order": {"nodes": 1}}`), 0o600))
	o, _, err := ReadOrder(dir)
	require.NoError(t, err)
	assert.Equal(t, AllIPMI, o.BMC)
	assert.False(t, Plan(o).Nodes[0].Redfish)
}

// TestARackWithRedfish: node-2's BMC is asked on the bmc network, and does as it is told. What overrides a start outlives
// the rack's supervisor until it is used up.
func TestARackWithRedfish(t *testing.T) {
	o := DefaultOrder()
	o.BMC = MixedBMCs
	c := newRackOf(t, o)
	c.mustStart(t)
	made, err := readRackDoc(c.Dir)
	require.NoError(t, err)
	tell := func(method, path, body string) int {
		t.Helper()
		conn, err := c.Dial(t.Context(), "172.23.0.102", "443")
		require.NoError(t, err)
		client := &http.Client{Transport: &http.Transport{
			DialTLS: func(string, string) (net.Conn, error) {
				return tls.Client(conn, &tls.Config{InsecureSkipVerify: true}), nil
			},
			DisableKeepAlives: true,
		}}
		r, err := http.NewRequestWithContext(t.Context(), method, "https://bmc"+redfish.SystemPath+path, strings.NewReader(body))
		require.NoError(t, err)
		r.SetBasicAuth(bmcUser, made.Password)
		response, err := client.Do(r)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	fromNetwork := `{"Boot": {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}}`

	assert.Len(t, c.processes(t).Children, 2, "the appliance and a simulator of IPMI")
	require.Equal(t, http.StatusOK, tell(http.MethodPatch, "", fromNetwork))
	c.becomes(t, 2, "it would boot from the network", func(m Machine) bool { return !m.On && m.Boot == bmc.BootNetwork })
	require.Equal(t, http.StatusNoContent, tell(http.MethodPost, "/Actions/ComputerSystem.Reset", `{"ResetType": "On"}`))
	m := c.becomes(t, 2, "it is on", func(m Machine) bool { return m.On && m.Boot == bmc.BootNone })
	assert.Regexp(t, `virtio-net-pci,mac=52:54:00:f1:02:01,\S*bootindex=1( |$)`, m.Command)
	assert.Contains(t, m.Command, "ide-cd,id=cd")
	assert.NotContains(t, c.becomes(t, 1, "the other is off", func(m Machine) bool { return !m.On }).Command, "ide-cd")

	require.Equal(t, http.StatusOK, tell(http.MethodPatch, "", fromNetwork))
	_, err = TearDown(c.Dir)
	require.NoError(t, err)
	c.mustStart(t)
	m = c.becomes(t, 2, "it is on again", func(m Machine) bool { return m.On })
	assert.Equal(t, bmc.BootNone, m.Boot)
	assert.Regexp(t, `virtio-net-pci,mac=52:54:00:f1:02:01,\S*bootindex=1( |$)`, m.Command)
	require.NoError(t, c.Press(t.Context(), "node-2", "reset"))
	m = c.becomes(t, 2, "it is on", func(m Machine) bool { return m.On })
	assert.NotRegexp(t, `virtio-net-pci,mac=52:54:00:f1:02:01,\S*bootindex=1( |$)`, m.Command)
}
