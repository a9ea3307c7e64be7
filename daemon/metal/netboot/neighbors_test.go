package netboot

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNeighborsAreFoundOnTheirNetworkAlone(t *testing.T) {
	table := filepath.Join(t.TempDir(), "arp")
	require.NoError(t, os.WriteFile(table, []byte(`IP address       HW type     Flags       HW address            Mask     Device
172.22.0.9       0x1         0x2         52:54:00:00:00:09     *        provisioning
172.22.0.10      0x1         0x0         00:00:00:00:00:00     *        provisioning
172.22.0.11      0x1         0x2         52:54:00:00:00:11     *        baremetal
`), 0o644))
	n := neighbors{file: table, nic: "provisioning"}
	machine, ok := n.MachineAt(netip.MustParseAddr("::ffff:172.22.0.9"))
	assert.True(t, ok)
	assert.Equal(t, "52:54:00:00:00:09", machine.MAC.String())
	for _, other := range []string{"172.22.0.10", "172.22.0.11", "172.22.0.90"} {
		_, ok := n.MachineAt(netip.MustParseAddr(other))
		assert.False(t, ok, other)
	}
}
