package virtualrack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestARackThatNoFileNamesBecomesACluster: a site of some ten lines, two servers that are off, one BMC by IPMI and one
// by Redfish. Nothing is typed after the power is on, and the cluster of both is verified.
func TestARackThatNoFileNamesBecomesACluster(t *testing.T) {
	c := newCommand(t, "qemu-all")
	c.run("up", "--image", c.image(), "--discover", "--nodes", "2", "--bmc", "mixed")
	text, err := os.ReadFile(filepath.Join(c.dir, siteFile))
	require.NoError(t, err)
	for _, m := range Plan(Order{Nodes: 2, BMC: MixedBMCs}).Machines() {
		for _, card := range m.Cards {
			require.NotContains(t, string(text), card.MAC.String())
		}
		require.NotContains(t, string(text), m.Name+":")
	}

	c.up()
	c.installed("node-1", "node-2")
	assert.Equal(t, 2, strings.Count(c.nodesReady(), " condition met\n"))
	assert.Equal(t, "True", strings.TrimSpace(c.run("ssh", Appliance,
		`kubectl get bpa -o jsonpath='{.items[*].status.conditions[?(@.type=="Verified")].status}'`)))
	hosts := c.run("ssh", Appliance, `kubectl -n metal3 get bmh -o jsonpath='{range .items[*]}{.metadata.name} {.spec.bmc.address}{"\n"}{end}'`)
	assert.Contains(t, hosts, "node-1 ipmi://172.23.0.")
	assert.Contains(t, hosts, "node-2 redfish://172.23.0.")
	assert.Equal(t, "[]", strings.TrimSpace(c.run("ssh", Appliance, "firstlightd discovered -o json")), "more was found than there is")

	log := c.run("ssh", Appliance, "journalctl -u firstlightd -o cat | grep -e leaseholder -e 'BMC of an unknown' -e 'machine became'")
	t.Log("\n" + log)
	c.remove(c.processes())
}
