package netboot

import (
	"bufio"
	"bytes"
	"net"
	"net/netip"
	"os"
	"strings"

	"firstlight.dev/firstlight/pxe"
)

// neighbors finds machines in the kernel's ARP table, where another DHCP server gives the addresses. Who asks by TCP
// is in it: the kernel has just answered that address there.
type neighbors struct {
	file string // /proc/net/arp
	nic  string
}

var _ pxe.Machines = neighbors{}

func arpTable(nic string) neighbors { return neighbors{file: "/proc/net/arp", nic: nic} }

// MachineAt implements pxe.Machines.
func (n neighbors) MachineAt(addr netip.Addr) (pxe.Machine, bool) {
	text, err := os.ReadFile(n.file)
	if err != nil {
		return pxe.Machine{}, false
	}

	mac, ok := neighborMAC(text, addr.Unmap(), n.nic)
	return pxe.Machine{MAC: mac, Addr: addr.Unmap()}, ok
}

// neighborMAC finds an address in the ARP table (proc_net(5), /proc/net/arp: address, hardware type, flags, hardware
// address, mask, device). An entry that is not complete has no flags.
func neighborMAC(table []byte, addr netip.Addr, nic string) (net.HardwareAddr, bool) {
	for lines := bufio.NewScanner(bytes.NewReader(table)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) != 6 || f[0] != addr.String() || f[2] == "0x0" || f[5] != nic {
			continue
		}

		mac, err := net.ParseMAC(f[3])
		return mac, err == nil
	}

	return nil, false
}
