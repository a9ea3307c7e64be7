package ovn

import (
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/netns/netnstest"
)

// newNamespace makes a network namespace, where that is wanted.
func newNamespace(t *testing.T) int {
	t.Helper()
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), "ns") || os.Geteuid() != 0 {
		t.Skip("makes network namespaces; set FIRSTLIGHT_TEST=ns, as root")
	}
	return netnstest.New(t)
}

// TestTheKernelTakesTheRules: nft writes them, a second time as well.
func TestTheKernelTakesTheRules(t *testing.T) {
	pid := newNamespace(t)
	require.NoError(t, netns.Do(netns.PathOf(pid), func() error {
		for range 2 {
			u := &Underlay{Address: netip.MustParseAddr("192.0.2.11")}
			if err := u.ensureRules(t.Context(), "eth0"); err != nil {
				return err
			}
		}
		out, err := exec.CommandContext(t.Context(), "nft", "list", "table", "ip", TableName).CombinedOutput()
		t.Logf("%s", out)
		assert.Equal(t, 5, strings.Count(string(out), "169.254.66.2")+strings.Count(string(out), "drop"))
		if err != nil {
			return err
		}
		return removeTable(t.Context())
	}))
}

// TestChecksumsCanBeLeftToTheKernel: ethtool(8) shows it.
func TestChecksumsCanBeLeftToTheKernel(t *testing.T) {
	pid := newNamespace(t)
	require.NoError(t, netns.IP(t.Context(), pid, "link add net0 type veth peer name other"))
	require.NoError(t, DisableChecksumOffload(netns.PathOf(pid), "net0"))
	assert.ErrorContains(t, DisableChecksumOffload(netns.PathOf(pid), "missing"), "switch off checksum offload of missing: no such device")
	if _, err := exec.LookPath("ethtool"); err != nil {
		t.Skip("no ethtool shows what came of it")
	}
	require.NoError(t, netns.Do(netns.PathOf(pid), func() error {
		out, err := exec.CommandContext(t.Context(), "ethtool", "--show-offload", "net0").CombinedOutput()
		assert.Contains(t, string(out), "tx-checksumming: off")
		return err
	}))
}
