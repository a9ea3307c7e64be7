package metal3

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_3"
	ignition "github.com/coreos/ignition/v2/config/v3_3/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vincent-petithory/dataurl"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/hostkey"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/site"
)

// parseIgnition reads a configuration as Ignition does: with nothing that it would complain about.
func parseIgnition(t *testing.T, text string) ignition.Config {
	t.Helper()
	c, report, err := v3_3.Parse([]byte(text))
	require.NoError(t, err, report.String())
	assert.Empty(t, report.String())
	return c
}

func contentOf(t *testing.T, f ignition.File) string {
	t.Helper()
	url, err := dataurl.DecodeString(*f.Contents.Source)
	require.NoError(t, err)
	return string(url.Data)
}

// TestANodeIsToldByIgnition: what the user data of each kind of node is, and that Ignition takes it.
func TestANodeIsToldByIgnition(t *testing.T) {
	text, err := os.ReadFile("testdata/site.yaml")
	require.NoError(t, err)
	s := loadSite(t, text)
	for _, n := range s.Nodes {
		n.OS.UserData = site.UserDataIgnition
		h, err := NewNodeObjects(s, n, testAppliance())
		require.NoError(t, err)
		assert.Equal(t, "ignition", h.Host.Annotations[label.UserData])
		data := string(h.User.Data["userData"])
		assert.True(t, hostkey.HasPlace([]byte(data)))
		assert.NotContains(t, data, "node-pass")

		var out bytes.Buffer
		c := parseIgnition(t, data)
		for _, u := range c.Passwd.Users {
			hash := ""
			if u.PasswordHash != nil {
				hash = *u.PasswordHash
			}
			fmt.Fprintf(&out, "# user %s of group %s %s %q\n", u.Name, *u.PrimaryGroup, hash, u.SSHAuthorizedKeys)
		}
		for _, f := range c.Storage.Files {
			if f.Path == ignitionHostKey {
				fmt.Fprintf(&out, "# %s %04o\n", f.Path, *f.Mode)
				continue
			}
			fmt.Fprintf(&out, "# %s %04o\n%s\n", f.Path, *f.Mode, contentOf(t, f))
		}
		for _, u := range c.Systemd.Units {
			fmt.Fprintf(&out, "# unit %s, enabled: %t\n%s\n", u.Name, *u.Enabled, *u.Contents)
		}
		fmt.Fprintf(&out, "# kernel arguments %v\n", c.KernelArguments.ShouldExist)
		goldentest.Check(t, "testdata/ignition-"+string(n.Name)+".txt", out.Bytes())
	}
}

// TestAnIgnitionNodeGetsItsHostKey: the ramdisk's key takes its place, and Ignition reads it.
func TestAnIgnitionNodeGetsItsHostKey(t *testing.T) {
	s := loadSite(t, []byte(`nodes: [{name: a, macs: ["52:54:00:00:00:01"], os: {image: debian-flatcar}, iommu: true}]`))
	a := testAppliance()
	a.Images["debian-flatcar"] = Image{URL: "x"}
	h, err := NewNodeObjects(s, s.Nodes[0], a)
	require.NoError(t, err)

	private := strings.Repeat("k", 386) + "\n"
	filled, had, err := hostkey.Fill(h.User.Data["userData"], []byte(private))
	require.NoError(t, err)
	require.True(t, had)
	c := parseIgnition(t, string(filled))
	assert.Equal(t, ignitionHostKey, c.Storage.Files[0].Path)
	assert.Equal(t, private, contentOf(t, c.Storage.Files[0]))
	assert.Equal(t, []ignition.KernelArgument{"intel_iommu=on", "iommu=pt"}, c.KernelArguments.ShouldExist)
}

// TestAHostsOwnIgnitionIsMerged: the host's own configuration counts, and the appliance is let in besides.
func TestAHostsOwnIgnitionIsMerged(t *testing.T) {
	own := `{"ignition": {"version": "3.3.0"}, "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA own"]}]}}`
	text, ok, err := mergeIgnition([]byte(own), "ssh-ed25519 AAAA appliance")
	require.NoError(t, err)
	require.True(t, ok)
	assert.True(t, hostkey.HasPlace([]byte(text)), "the ramdisk does not find where the host key goes")

	c := parseIgnition(t, text)
	require.Len(t, c.Ignition.Config.Merge, 1)
	child, err := dataurl.DecodeString(*c.Ignition.Config.Merge[0].Source)
	require.NoError(t, err)
	assert.Equal(t, own, string(child.Data))
	merged := v3_3.Merge(c, parseIgnition(t, own))
	var users []string
	for _, u := range merged.Passwd.Users {
		users = append(users, fmt.Sprint(u.Name, u.SSHAuthorizedKeys))
	}
	assert.ElementsMatch(t, []string{"root[ssh-ed25519 AAAA appliance]", "core[ssh-ed25519 AAAA own]"}, users)
	assert.Len(t, merged.Storage.Files, 1)

	again, ok, err := mergeIgnition([]byte(text), "ssh-ed25519 AAAA appliance")
	require.NoError(t, err)
	require.True(t, ok)
	assert.Equal(t, text, again, "merged twice: its own inner place of the host key would count, which nobody fills")
	newer, _, err := mergeIgnition([]byte(text), "ssh-ed25519 AAAA another")
	require.NoError(t, err)
	assert.NotContains(t, newer, "AAAA appliance")

	for _, other := range []string{"", "#cloud-config\n", `{"ignition": {"version": "2.3.0"}}`, `{"version": "3.3.0"}`, "machine: {}"} {
		_, ok, err := mergeIgnition([]byte(other), "key")
		require.NoError(t, err)
		assert.False(t, ok, other)
	}
}

// TestANodeLeasesOfTheFamilyOfItsNetwork, whatever configures its network.
func TestANodeLeasesOfTheFamilyOfItsNetwork(t *testing.T) {
	s := loadSite(t, []byte(`networks: {provisioning: {cidr: "fd00:22::/64"}}
nodes:
  - name: node-1
    macs: ["52:54:00:00:00:01"]
    links: [{network: provisioning, mac: "52:54:00:00:00:01"}, {network: baremetal, mac: "52:54:00:00:00:02"}]
`))
	data := nodeNetwork(s, s.Nodes[0])
	require.Len(t, data.Networks, 2)
	assert.Equal(t, "ipv6_dhcp", data.Networks[0].Type)
	assert.Equal(t, "ipv4_dhcp", data.Networks[1].Type)
	networkd, manager := networkdFiles(data), networkManagerFiles(data)
	require.Len(t, networkd, 2)
	require.Len(t, manager, 2)
	assert.Contains(t, contentOf(t, networkd[0]), "DHCP=ipv6\n")
	assert.Contains(t, contentOf(t, networkd[1]), "DHCP=ipv4\n")
	assert.Contains(t, contentOf(t, manager[0]), "[ipv4]\nmethod=disabled\n\n[ipv6]\nmethod=auto\n")
	assert.Contains(t, contentOf(t, manager[1]), "[ipv4]\nmethod=auto\n")
}
