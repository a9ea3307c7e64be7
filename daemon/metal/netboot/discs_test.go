package netboot

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/firewall"
	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/bootserver"
	"firstlight.dev/firstlight/pxe/metrics"
)

// oneDisc says what the only machine finds on its disc.
type oneDisc struct {
	args []string
	made time.Time
	err  error
}

func (d *oneDisc) MachineAt(netip.Addr) (pxe.Machine, bool) {
	return pxe.Machine{MAC: net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}}, true
}

func (d *oneDisc) Arguments(pxe.Machine) ([]string, time.Time, error) { return d.args, d.made, d.err }

// TestADiscIsPutTogetherOfWhatTheStickHas: kernel, ramdisk with the authority's tail, boot loaders, and the arguments
// of this machine; with other arguments it is another disc.
func TestADiscIsPutTogetherOfWhatTheStickHas(t *testing.T) {
	dir := relative(ramdiskDir)
	kernel, ramdisk := bytes.Repeat([]byte("kernel"), 9_001), bytes.Repeat([]byte("ramdisk"), 9_001)
	root := fstest.MapFS{
		dir + "/kernel":      {Data: kernel},
		dir + "/initramfs":   {Data: ramdisk},
		dir + "/shimx64.efi": {Data: []byte("shim of Debian")},
		dir + "/gcdx64.efi":  {Data: []byte("GRUB of Debian")},
	}
	discs := &oneDisc{args: []string{"token=first"}, made: time.Unix(1_700_000_000, 0)}
	s := &Server{
		Log: slog.New(slog.DiscardHandler), Discs: discs,
		RamdiskTail: func(int64) ([]byte, error) { return []byte("tail with the authority"), nil },
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	server := &bootserver.Server{
		Machines: discs, Record: &s.traces, Metrics: metrics.New(prometheus.NewRegistry()), Log: s.Log,
		Disc: func(_ context.Context, m pxe.Machine) (bootserver.File, fs.FileInfo, error) {
			return s.openDisc(root, time.Now(), m)
		},
	}
	go func() { assert.NoError(t, server.Serve(t.Context(), listener)) }()
	read := func() (*http.Response, []byte) {
		response, err := http.Get("http://" + listener.Addr().String() + pxe.DiscPath)
		require.NoError(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response, body
	}

	first, disc := read()
	require.Equal(t, http.StatusOK, first.StatusCode, "%s", disc)
	for _, piece := range [][]byte{
		kernel, append(bytes.Clone(ramdisk), "tail with the authority"...), []byte("shim of Debian"), []byte("GRUB of Debian"),
		[]byte("if linux /vmlinuz token=first; then"),
	} {
		assert.True(t, bytes.Contains(disc, piece), "%.20s", piece)
	}

	layout := s.layout.layout
	discs.args, discs.made = []string{"token=second"}, discs.made.Add(time.Minute)
	second, other := read()
	assert.True(t, bytes.Contains(other, []byte("token=second")))
	assert.False(t, bytes.Contains(other, []byte("token=first")))
	assert.Equal(t, len(disc), len(other))
	assert.NotEqual(t, first.Header.Get("ETag"), second.Header.Get("ETag"), "a BMC would take both for the same")
	assert.Same(t, layout, s.layout.layout, "it is laid out again")

	discs.err = errors.New("host node-1 is in service")
	response, said := read()
	assert.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
	assert.Contains(t, string(said), "in service")
	discs.err = nil
	delete(root, dir+"/gcdx64.efi")
	s.layout.layout = nil
	response, _ = read()
	assert.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
}

// TestBMCsAreToldWhereDiscsAre: at a port that the packet filter lets through.
func TestBMCsAreToldWhereDiscsAre(t *testing.T) {
	i := slices.IndexFunc(firewall.Listeners(), func(l firewall.Listener) bool { return l.Name == "discs" })
	require.GreaterOrEqual(t, i, 0)
	assert.EqualValues(t, DiscPort, firewall.Listeners()[i].Port)

	s := read(t, "nodes: [{name: a, macs: [\"52:54:00:00:00:01\"]}]")
	server := &Server{Site: func() *site.Site { return s }}
	assert.Empty(t, server.DiscURL(), "no node boots from one")
	s = read(t, `networks: {bmc: {interface: eno3, cidr: 10.30.0.0/24, address: 10.30.0.1}}
nodes:
  - name: node-1
    bmc: {address: "redfish-virtualmedia://10.30.0.11/redfish/v1/Systems/1", username: a, password: b}
    links: [{network: provisioning, mac: "52:54:00:00:00:01", address: 172.22.0.201/24}]
`)
	assert.Equal(t, "http://10.30.0.1:6181/disc.iso", server.DiscURL())
}

// TestANodeThatBootsFromADiscIsKnownWithoutALease, as long as it is its NIC that has the address.
func TestANodeThatBootsFromADiscIsKnownWithoutALease(t *testing.T) {
	s := read(t, `nodes:
  - name: node-1
    bmc: {address: "redfish-virtualmedia://172.22.0.2/redfish/v1/Systems/1", username: a, password: b}
    links: [{network: provisioning, mac: "52:54:00:00:00:01", address: 172.22.0.201/24}]
  - name: node-2
    macs: ["52:54:00:00:00:02"]
    links: [{network: provisioning, mac: "52:54:00:00:00:02", address: 172.22.0.202/24}]
`)
	var static staticAddresses
	seen := arp{}
	f := fixedMachines{mac: func(a netip.Addr) site.MAC { return static.discMAC(a, func() *site.Site { return s }) }, seen: seen}
	at := netip.MustParseAddr
	_, ok := f.MachineAt(at("172.22.0.201"))
	assert.False(t, ok, "it was not heard")
	seen[at("172.22.0.201")] = net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}
	seen[at("172.22.0.202")] = net.HardwareAddr{0x52, 0x54, 0, 0, 0, 2}
	m, ok := f.MachineAt(at("172.22.0.201"))
	assert.True(t, ok)
	assert.Equal(t, "52:54:00:00:00:01", m.MAC.String())
	_, ok = f.MachineAt(at("172.22.0.202"))
	assert.False(t, ok, "it boots from the network, and has a lease")
	seen[at("172.22.0.201")] = net.HardwareAddr{0x52, 0x54, 0, 0, 0, 9}
	_, ok = f.MachineAt(at("172.22.0.201"))
	assert.False(t, ok, "another machine took the address")
	assert.True(t, static.has(at("172.22.0.202"), func() *site.Site { return s }))
}

// arp is who has which address.
type arp map[netip.Addr]net.HardwareAddr

func (a arp) MachineAt(addr netip.Addr) (pxe.Machine, bool) {
	mac, ok := a[addr]
	return pxe.Machine{MAC: mac, Addr: addr}, ok
}
