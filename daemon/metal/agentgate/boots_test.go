package agentgate

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe"
)

func newBoots(path string) *Boots { return &Boots{Path: path, Log: slog.New(slog.DiscardHandler)} }

func machine(i int) pxe.Machine {
	return pxe.Machine{
		MAC:  net.HardwareAddr{0x52, 0x54, 0, byte(i >> 16), byte(i >> 8), byte(i)},
		Addr: netip.AddrFrom4([4]byte{172, 22, byte(i >> 8), byte(i)}),
	}
}

func TestBootsOutliveARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agents", "boots.json")
	b := newBoots(path)
	token, err := b.Mint(machine(1), "node1", "")
	require.NoError(t, err)
	boot, ok := b.Find(token.Reveal())
	require.True(t, ok)
	b.bind(boot, uuid)
	require.NoError(t, b.save())

	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.NotContains(t, string(text), token.Reveal(), "the token itself is kept nowhere")
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	after := newBoots(path)
	boot, ok = after.Find(token.Reveal())
	require.True(t, ok)
	assert.Equal(t, "node1 "+uuid+" 52:54:00:00:00:01 172.22.0.1", fmt.Sprint(boot.Host, " ", boot.UUID, " ", boot.MAC, " ", boot.Addr))
}

// TestAnAgentThatCallsIsHeard by the newest token of its machine, and by no other.
func TestAnAgentThatCallsIsHeard(t *testing.T) {
	b := newBoots(filepath.Join(t.TempDir(), "boots.json"))
	const mac = "52:54:00:00:00:01"
	assert.Zero(t, b.CalledAt(mac))
	first, err := b.Mint(machine(1), "node1", uuid)
	require.NoError(t, err)
	assert.Zero(t, b.CalledAt(mac))
	_, ok := b.Find("another")
	assert.False(t, ok)
	assert.Zero(t, b.CalledAt(mac))
	_, ok = b.Find(first.Reveal())
	assert.True(t, ok)
	assert.NotZero(t, b.CalledAt(mac))

	_, err = b.Mint(machine(1), "node1", uuid)
	require.NoError(t, err)
	_, _ = b.Find(first.Reveal())
	assert.Zero(t, b.CalledAt(mac), "the agent of the boot before counts for this one")
}

func TestTheNewestBootOfAMachineCounts(t *testing.T) {
	b := newBoots(filepath.Join(t.TempDir(), "boots.json"))
	first, err := b.Mint(machine(1), "node1", uuid)
	require.NoError(t, err)
	second, err := b.Mint(machine(1), "node1", uuid)
	require.NoError(t, err)
	assert.NotEqual(t, first, second)
	_, ok := b.Find(first.Reveal())
	assert.False(t, ok)
	_, ok = b.Find(second.Reveal())
	assert.True(t, ok)
}

// TestAFloodOfUnknownMachinesEndsNoNodesBoot, and what is kept does not grow.
func TestAFloodOfUnknownMachinesEndsNoNodesBoot(t *testing.T) {
	b := newBoots(filepath.Join(t.TempDir(), "boots.json"))
	node, err := b.Mint(machine(1), "node1", uuid)
	require.NoError(t, err)
	for i := range 2 * maxUnknown {
		_, err := b.Mint(machine(2+i), "", "")
		require.NoError(t, err)
	}
	_, ok := b.Find(node.Reveal())
	assert.True(t, ok)
	assert.Len(t, b.byMAC, 1+maxUnknown)
	assert.Len(t, b.byDigest, 1+maxUnknown)
}

func TestATornFileAdmitsNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "boots.json")
	b := newBoots(path)
	token, err := b.Mint(machine(1), "node1", uuid)
	require.NoError(t, err)
	require.NoError(t, b.save())
	require.NoError(t, os.Truncate(path, 20))
	after := newBoots(path)
	_, ok := after.Find(token.Reveal())
	assert.False(t, ok)
	_, err = after.Mint(machine(1), "node1", uuid)
	require.NoError(t, err)
	assert.NoError(t, after.save())
}
