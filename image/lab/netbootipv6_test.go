package lab_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab"
)

// TestNetbootByIPv6 walks machines from OVMF's own PXE and HTTP boot to a program in a ramdisk on a network where
// nothing has an address of IPv4. Every frame is read: whatever asks by IPv4 is a machine's own DHCP, and no one answers.
func TestNetbootByIPv6(t *testing.T) {
	dir, isInside := enterNetbootNamespace(t)
	if !isInside {
		return
	}

	for _, args := range []string{"-4 addr flush dev netboot0", "addr add fd00:1::1/64 dev netboot0 nodad"} {
		out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
		require.NoError(t, err, "ip %s: %s", args, out)
	}
	parts := netbootPaths(dir)
	parts.address = `"fd00:1::1"`
	parts.subnet = `{prefix: "fd00:1::/64", pool: "fd00:1::1:0-fd00:1::1:ff", lease: 10m}`
	const (
		lease  = "event=ack mac=52:54:00:fe:00:01 addr=fd00:1::1:"
		script = `ipxe: script" mac=52:54:00:fe:00:01 client=[fd00:1::1:`
	)
	for _, machine := range []struct {
		name     string
		firmware lab.Firmware
		mac      string
		extra    []string // of QEMU's arguments
		steps    []string // in the daemon's log, in this order
	}{
		{
			"pxe", lab.UEFI, netbootMAC, withoutPXE,
			[]string{
				lease, "file=tftp://[fd00:1::1]/snponly.efi", `transfer ended" mac=52:54:00:fe:00:01`, "file=snponly.efi result=done", lease,
				"file=http://[fd00:1::1]:8080/ipxe/52-54-00-fe-00-01", script, "path=/vmlinuz", "path=/ramdisk",
			},
		},
		{
			// A firmware that has no PXE goes on to HTTP boot.
			"http", lab.UEFI, netbootMAC, append(slices.Clone(withoutPXE), "-fw_cfg", "name=opt/org.tianocore/IPv6PXESupport,string=n"),
			[]string{
				lease, "file=http://[fd00:1::1]:8080/boot/snponly.efi", "path=/boot/snponly.efi", lease, script,
				"path=/vmlinuz", "path=/ramdisk",
			},
		},
	} {
		t.Run(machine.name, func(t *testing.T) {
			frames := countFrames(t, "netboot0")
			m, log, _ := newNetbootMachine(t, parts, machine.firmware, machine.mac, "virtio-net-pci,romfile=", machine.extra)
			require.NoError(t, m.Start(t.Context()))
			assertNetbooted(t, m, machine.mac, log, machine.steps)
			counts := frames()
			t.Logf("frames: %v", counts)
			assert.Greater(t, counts["IPv6"], 1000, "the capture is not of this network")
			for kind := range counts {
				assert.False(t, strings.HasPrefix(kind, "IPv4"), kind)
			}
		})
	}
}

// countFrames counts the frames on an interface, of either direction, by what they are, until the result is asked for.
func countFrames(t *testing.T, device string) func() map[string]int {
	frames, err := pcapgo.NewEthernetHandle(device)
	require.NoError(t, err)
	var mu sync.Mutex
	counts := map[string]int{}
	go func() {
		for {
			data, _, err := frames.ReadPacketData()
			if err != nil {
				return
			}
			mu.Lock()
			counts[frameKind(data)]++
			mu.Unlock()
		}
	}()
	t.Cleanup(func() { _ = frames.Close() })
	return func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		all := counts
		counts = map[string]int{}
		return all
	}
}

// frameKind is what is in a frame, by the name of its Ethernet type; of IPv4 what it is to be, a machine's request by
// DHCP, or all of it.
func frameKind(data []byte) string {
	p := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.Default)
	eth, ok := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	if !ok || eth.EthernetType == layers.EthernetTypeLLC {
		return "LLC"
	}
	if eth.EthernetType != layers.EthernetTypeIPv4 && eth.EthernetType != layers.EthernetTypeARP {
		return eth.EthernetType.String()
	}
	ip, _ := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	dhcp, _ := p.Layer(layers.LayerTypeDHCPv4).(*layers.DHCPv4)
	if ip == nil || dhcp == nil || dhcp.Operation != layers.DHCPOpRequest || !ip.SrcIP.IsUnspecified() {
		return "IPv4: " + fmt.Sprint(p)
	}
	return askedByIPv4
}

const askedByIPv4 = "DHCPv4 of a machine without an address"
