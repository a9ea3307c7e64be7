package virtualrack

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/vswitch"
)

// TestServersAreInstalledByATaggedBond: the appliance reaches the provisioning network by two cards as one, with a tag.
// One cable is out from the beginning; while servers are being installed it comes back, and the other is out. A BIOS
// and a UEFI server, on ports that know of no tag, are installed and verified.
func TestServersAreInstalledByATaggedBond(t *testing.T) {
	c := newCommand(t, "qemu-all")
	c.run("up", "--image", c.image(), "--nodes", "2", "--firmware", "mixed", "--vlan", "7", "--bond", "--cluster=false", "--capture")
	leg := []string{"cable", Appliance, "--network", provisioning, "--card"}
	c.run(append(leg, "1", "--out")...)
	c.until("node-1", "provisioning")
	links := c.run("ssh", Appliance, "ip -d -br link; grep -h -e Mode -e Slave -e MII /proc/net/bonding/*")
	t.Log("\n" + links)
	assert.Contains(t, links, "active-backup")
	c.run(append(leg, "1")...)
	c.run(append(leg, "2", "--out")...)

	c.up()
	c.installed("node-1", "node-2")
	t.Log("\n" + c.run("why"))
	cables := c.status().Machines[0].Cables
	assert.Equal(t, vswitch.Fault{Out: true}, cables[len(cables)-1].Fault)

	// Every packet of IPv4 on that switch has the tag, also those of the boots.
	captures, err := filepath.Glob(filepath.Join(c.dir, provisioning+"-*.pcap"))
	require.NoError(t, err)
	require.Len(t, captures, 1)
	for filter, isThere := range map[string]bool{
		"vlan.id == 7 && dhcp": true, "vlan.id == 7 && tcp.srcport == 6180": true, "ip && !vlan": false, "vlan && vlan.id != 7": false,
	} {
		out, err := exec.Command("tshark", "-n", "-r", captures[0], "-Y", filter, "-T", "fields", "-e", "frame.number").Output()
		require.NoError(t, err)
		first, _, _ := strings.Cut(string(out), "\n")
		assert.Equal(t, isThere, first != "", "frames with %s, the first of them %s", filter, first)
	}
	c.remove(c.processes())
}
