package site

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestANodesOwnValueWins: what a node does not give comes from nodeDefaults, and what makes one value together is not
// mixed.
func TestANodesOwnValueWins(t *testing.T) {
	const defaults = `
nodeDefaults:
  bootMode: legacy
  bmc: {username: admin, password: common}
  os: {url: "https://images.example.org/a.raw", sha256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", format: raw, username: op, password: os-common}
  rootDevice: {minSizeGigabytes: 200, rotational: false}
  overwrite: true
  labels: {row: b, rack: "7"}
`
	load := func(node string) Node {
		t.Helper()
		s, problems := Load("site.yaml", []byte(defaults+"nodes: [{name: a, macs: ['52:54:00:00:00:01'], "+node+"}]\n"))
		require.Empty(t, problems.String())
		once := s.WithDefaults()
		require.Equal(t, once, once.WithDefaults(), "a default came back where the node has its own")
		return once.Nodes[0]
	}

	all := load("bmc: {address: 'ipmi://10.0.0.5'}")
	assert.Equal(t, "legacy", all.BootMode)
	assert.Equal(t, "admin", all.BMC.Username)
	assert.Equal(t, "common", all.BMC.Password.Reveal())
	assert.EqualValues(t, "https://images.example.org/a.raw", all.OS.URL)
	assert.Equal(t, "raw", all.OS.Format)
	assert.Equal(t, "op", all.OS.Username)
	assert.Equal(t, 200, all.RootDevice.MinSizeGigabytes)
	assert.True(t, all.Overwrite.IsGranted())
	assert.Equal(t, map[string]string{"row": "b", "rack": "7"}, all.Labels)

	own := load(`bootMode: UEFI, bmc: {address: 'ipmi://10.0.0.5', username: root, password: mine}, os: {image: debian-13},
  rootDevice: {serialNumber: S1}, overwrite: false, labels: {rack: "8"}`)
	assert.Equal(t, "UEFI", own.BootMode)
	assert.Equal(t, "root", own.BMC.Username)
	assert.Equal(t, "mine", own.BMC.Password.Reveal())
	assert.Equal(t, OS{Image: "debian-13", UserData: "cloud-init", Username: "op", Password: own.OS.Password}, own.OS, "no part of the other image")
	assert.Equal(t, RootDevice{SerialNumber: "S1"}, *own.RootDevice, "hints are not mixed")
	assert.False(t, own.Overwrite.IsGranted(), "false stands against the default")
	assert.Equal(t, map[string]string{"row": "b", "rack": "8"}, own.Labels)

	assert.Nil(t, load("labels: {}").BMC, "credentials alone make no BMC")
}

func TestNodeDefaultsAreSecretToo(t *testing.T) {
	clean, secrets, err := Redact([]byte("nodeDefaults: {bmc: {username: admin, password: hunter2}, os: {password: hunter3}}\n"))
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"hunter2", "hunter3"}, secrets)
	assert.NotContains(t, string(clean), "hunter")
}

// TestTheSharedLoginStaysWhereBMCsAre: a document in use keeps what it has, with a note.
func TestTheSharedLoginStaysWhereBMCsAre(t *testing.T) {
	const bmc, defaults = "networks: {bmc: {cidr: 10.30.0.0/24}}\n", "nodeDefaults: {bmc: {username: admin, password: common}}\n"
	for _, c := range []struct {
		site, bmc string
		refused   bool
	}{
		{bmc + defaults, "address: 'ipmi://10.30.0.5'", false},
		{bmc + defaults, "address: 'ipmi://10.31.0.5'", true},
		{bmc + defaults, "address: 'redfish://bmc.example.org/redfish/v1/Systems/1'", true},
		{bmc + defaults, "address: 'redfish://[::ffff:10.30.0.5]/redfish/v1/Systems/1'", false},
		{bmc + defaults, "address: 'ipmi://10.31.0.5', username: root, password: its-own", false},
		{bmc + defaults + "discover: {count: 1, bmcs: [10.31.0.0/24]}\n", "address: 'ipmi://10.31.0.5'", false},
		{defaults + "discover: {count: 1, bmcs: [10.30.0.0/24]}\n", "address: 'ipmi://10.31.0.5'", true},
		{defaults, "address: 'ipmi://10.31.0.5'", false}, // nothing says where BMCs are
		{bmc, "address: 'ipmi://10.31.0.5'", false},
	} {
		text := []byte(c.site + "nodes: [{name: a, macs: ['52:54:00:00:00:01'], bmc: {" + c.bmc + "}}]\n")
		_, problems := Load("site.yaml", text)
		s, notes, inUse := Accept("site.yaml", text)
		require.Empty(t, inUse, "%s: a site in use is refused", text)
		assert.Equal(t, c.refused, len(problems) == 1, "%s%s", text, problems)
		assert.Equal(t, c.refused, len(notes) == 1, "%s", text)
		if c.refused {
			assert.Contains(t, problems.String(), "site.yaml:")
			assert.Contains(t, problems.String(), "nodes[0].bmc.address: ")
			assert.Contains(t, problems.String(), "would be told nodeDefaults.bmc; correct it, or give username and password here")
			assert.Equal(t, c.site != bmc, s.WithDefaults().Nodes[0].BMC.Username == "admin")
		}
	}
}
