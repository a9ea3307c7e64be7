package dhcp

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe/lease"
)

func seeds(t testing.TB) [][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/packets/*.hex")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var all [][]byte
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		data, err := hex.DecodeString(string(bytes.TrimSpace(text)))
		require.NoError(t, err)
		all = append(all, data)
	}
	return all
}

// FuzzDecide: no packet panics, and whatever is answered keeps the promises of the table.
func FuzzDecide(f *testing.F) {
	for i, data := range seeds(f) {
		f.Add(data, i%5 == 0, i%7 == 0)
	}
	plan, err := NewPlan(testConfig())
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, data []byte, proxy, bootService bool) {
		port := PortServer
		if bootService {
			port = PortPXE
		}
		r, err := ParseRequest(data, port, netip.MustParseAddrPort("172.22.1.7:68"))
		if err != nil {
			return
		}
		other := had("172.22.1.3", "02:00:00:00:00:07", lease.Active, 0, 1e12)
		table := lease.NewTable(plan.Spaces(), []lease.Lease{other})
		a := Decide(t.Context(), plan, table, goldenNow, policy{}, proxy, r)
		require.NotEmpty(t, a.Events, "a request without a trace")
		if a.Put != nil {
			table.Put(*a.Put)
			if r.MAC != other.MAC {
				l, _ := table.LeaseAt(other.Addr)
				assert.Equal(t, other, l, "another machine's lease changed")
			}
		}
		if a.Reply == nil {
			return
		}
		wire := a.Reply.ToBytes()
		assert.LessOrEqual(t, len(wire), 1472, "longer than an Ethernet frame")
		back, err := dhcpv4.FromBytes(wire)
		require.NoError(t, err)
		assert.Equal(t, r.Packet.TransactionID, back.TransactionID)
		if y := addr4(back.YourIPAddr); y.IsValid() {
			assert.NotEqual(t, plan.Server, y)
			assert.True(t, r.MAC == other.MAC || y != other.Addr, "an address was given twice")
		}
	})
}

// TestFault01MalformedPackets mutilates every example packet in every byte and length.
func TestFault01MalformedPackets(t *testing.T) {
	plan, err := NewPlan(testConfig())
	require.NoError(t, err)
	table := lease.NewTable(plan.Spaces(), nil)
	parsed := 0
	try := func(data []byte) {
		r, err := ParseRequest(data, PortServer, netip.AddrPort{})
		if err != nil {
			return
		}
		parsed++
		a := Decide(t.Context(), plan, table, goldenNow, policy{}, false, r)
		if a.Reply != nil {
			a.Reply.ToBytes()
		}
	}
	for _, data := range seeds(t) {
		for n := range data {
			try(data[:n])
			for _, b := range []byte{0, 1, 255, data[n] ^ 0x80} {
				changed := bytes.Clone(data)
				changed[n] = b
				try(changed)
			}
		}
	}
	assert.NotZero(t, parsed)
}
