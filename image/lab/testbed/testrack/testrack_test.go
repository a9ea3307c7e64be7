package testrack_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/testbed/testrack"
)

// The whole way of one server: it has data on its disk and is held, its owner consents, it is
// installed, answers on SSH with the host key that the appliance minted for it, and is proven.
func TestServerIsInstalledWithConsentBIOS(t *testing.T) {
	need(t, "rack")
	r := newRoom(t, 40*time.Minute, "legacy")
	box := r.node1("")
	out, err := exec.Command("sh", "-c", `printf 'label: gpt\nsize=1GiB\n' | sfdisk -q "$0"`, box.DiskFile()).CombinedOutput()
	require.NoError(t, err, "%s", out)
	before := sum(t, box.DiskFile())
	r.power()

	held := r.until("node1", r.status, func(s string) bool { return strings.Contains(s, "set overwrite: data-") })
	assert.Contains(t, held, "is not empty, it holds: gpt")
	assert.Equal(t, before, sum(t, box.DiskFile()), "inspection wrote to the disk")
	r.nodes[0].extra = "    overwrite: true\n"
	r.site()
	r.run("firstlightd", "reload")
	r.installed(box)
	r.launched()
	r.refuses()
}

// A server with two disks is held until its owner says which; the other one is left as it was.
func TestServerIsInstalledOnTheDiskThatIsNamedUEFI(t *testing.T) {
	need(t, "rack-all")
	r := newRoom(t, 40*time.Minute, "UEFI")
	data := filepath.Join(t.TempDir(), "data.raw")
	require.NoError(t, os.WriteFile(data, []byte(strings.Repeat("somebody's data ", 1<<20)), 0o644))
	before := sum(t, data)
	box := r.node1(data)
	r.power()

	held := r.until("node1", r.status, func(s string) bool { return strings.Contains(s, "rootDevice fits 2 disks") })
	assert.Contains(t, held, "serialNumber node1;")
	assert.Contains(t, held, "serialNumber node1-data")
	assert.Zero(t, written(t, box), "something was written to a disk that nobody named")
	r.nodes[0].extra = "    rootDevice: {serialNumber: node1}\n"
	r.site()
	r.run("firstlightd", "reload")
	r.installed(box)
	assert.Contains(t, r.ssh("ls /sys/firmware"), "efi")
	assert.Equal(t, before, sum(t, data), "the disk that was not named was changed")
}

// The same way with a BMC that speaks Redfish over TLS, with a certificate that it made itself: the server boots from the
// network because its BMC was told so, and that certificate is pinned.
func TestServerIsInstalledByRedfishUEFI(t *testing.T) {
	need(t, "rack-all")
	r := newRoom(t, 40*time.Minute, "UEFI")
	r.nodes[0].scheme = "redfish+https"
	box := r.node1("")
	r.power()

	r.installed(box)
	r.launched()
	assert.Contains(t, box.Writes(), "boot Pxe Once")
	pins, err := filepath.Glob(r.appliance.Path("/var/lib/firstlight/hosts/bmc/*"))
	require.NoError(t, err)
	assert.Len(t, pins, 1, "the certificate is not on DATA")
}

// The same without DHCP and TFTP: the BMC puts a disc into the drive, which has the node's address and the token of its
// boot. On the whole network nobody asks for an address or for a file.
func TestServerIsInstalledFromADiscUEFI(t *testing.T) {
	need(t, "rack-all")
	r := newRoom(t, 40*time.Minute, "UEFI")
	r.nodes[0].scheme = "redfish-virtualmedia+https"
	r.settings = ", dhcp: {mode: none}"
	box := r.node1("")
	captured := filepath.Join(t.TempDir(), "rack.pcap")
	stop, err := r.rack.CaptureTo(captured)
	require.NoError(t, err)
	r.power()

	r.installed(box)
	r.launched()
	require.NoError(t, stop())
	assert.Contains(t, box.Writes(), "insert http://172.22.0.1:6181/disc.iso")
	assert.Contains(t, box.Writes(), "boot Cd Once")
	assert.NotContains(t, strings.Join(box.Writes(), ", "), "Pxe")
	of, frames := countBootFrames(t, captured)
	assert.Greater(t, frames, 1000, "the capture is not of this rack")
	assert.Empty(t, of, "frames with DHCP or TFTP")
}

// countBootFrames counts the frames of a capture with DHCP or TFTP, by who sent them, and all of them.
func countBootFrames(t *testing.T, file string) (boot map[string]int, all int) {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	require.NoError(t, err)
	boot = map[string]int{}
	for {
		frame, _, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return boot, all
		}
		require.NoError(t, err)
		all++
		p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
		udp, ok := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
		if !ok {
			continue
		}
		for _, port := range []layers.UDPPort{67, 68, 69, 4011, 546, 547} { // DHCP, TFTP, PXE, DHCPv6
			if udp.DstPort == port || udp.SrcPort == port {
				boot[fmt.Sprintf("%s to port %d", p.LinkLayer().LinkFlow().Src(), udp.DstPort)]++
				break
			}
		}
	}
}

// installed waits until node1 is in service and shows what it is then.
func (r *room) installed(box *testrack.Server) {
	r.t.Helper()
	began := time.Now()
	r.provisioned()
	r.agree()
	assert.Contains(r.t, r.run("openstack", "baremetal", "node", "show", "metal3~node1", "-f", "json", "-c", "parent_node"), `"parent_node": null`, "a PATCH made the node its own parent")
	log := r.ssh("hostname; uname -r; cloud-init status --wait; ip -br addr; df -h /; sudo cloud-init schema --system; cat /var/lib/cloud/data/result.json")
	r.t.Logf("logged in after %s:\n%s", time.Since(began).Round(time.Second), log)
	assert.Contains(r.t, log, "node1\n")
	assert.Contains(r.t, log, "status: done")
	assert.Contains(r.t, log, "172.22.0.150/24")
	assert.NotContains(r.t, log, "Invalid", "cloud-init does not know all that it was told")
	r.t.Logf("what its BMC was told: %s", strings.Join(box.Writes(), ", "))
}

// refuses asks Ironic without a password and without TLS.
func (r *room) refuses() {
	r.t.Helper()
	ca := r.appliance.Path("/var/lib/firstlight/ca/ca.crt")
	assert.Contains(r.t, r.curl("--cacert", ca, "https://172.22.0.1:6385/v1/nodes"), " 401 ", "Ironic answers without a password")
	assert.Contains(r.t, r.curl("http://172.22.0.1:6385/v1/nodes"), " 400 ", "it answers without TLS")
}

// curl asks from the appliance's network, and logs the answer or why there is none.
func (r *room) curl(args ...string) string {
	r.t.Helper()
	words := append([]string{fmt.Sprintf("--net=/proc/%d/ns/net", r.appliance.PID()), "curl", "-sSi", "-m", "60"}, args...)
	out, _ := exec.CommandContext(r.ctx, "nsenter", words...).CombinedOutput()
	r.t.Logf("curl %s\n%s", strings.Join(args, " "), out)
	return string(out)
}
