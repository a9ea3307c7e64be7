package bmc

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// addressFile has the BMC's address, and is another one when it leases another.
const addressFile = "address"

// lanProgram tells the simulator its LAN parameters (OpenIPMI's ipmi_sim_lancontrol is the example): a real BMC has an
// address of its own, and tells it to the system inside.
const lanProgram = `#!/bin/sh
[ "$1" = get ] || exit 0
shift
for name; do
	case $name in
	ip_addr) echo "ip_addr:$(cat '%s')" ;;
	ip_addr_src) echo "ip_addr_src:static" ;;
	subnet_mask) echo "subnet_mask:255.255.255.0" ;;
	*mac_addr) echo "$name:00:00:00:00:00:00" ;;
	*) echo "$name:0.0.0.0" ;;
	esac
done
`

// insideConfig is what the simulator's configuration has for the machine's own interface: of the controller, and of its
// LAN.
func (b *BMC) insideConfig(dir string) (system, lan string, err error) {
	if !b.config.Inside.IsValid() {
		return "", "", nil
	}

	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", "", fmt.Errorf("find a port: %w", err)
	}
	b.inside = listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		return "", "", err
	}

	system = fmt.Sprintf("  serial kcs 127.0.0.1 %d codec VM\n", b.inside)
	return system, fmt.Sprintf("    lan_config_program %q\n", filepath.Join(dir, "lan")), nil
}

// SetInside tells the system inside another address of its BMC, of one that was started with an address for it.
func (b *BMC) SetInside(addr netip.Addr) error {
	return atomicfile.Write(filepath.Join(b.config.Dir, addressFile), []byte(addr.String()+"\n"), 0o644)
}

// Args are QEMU's arguments for the machine's own interface to its BMC, by which the system inside learns the BMC's
// address: a keyboard controller style interface (IPMI 2.0, chapter 9), as servers have. QEMU connects when its machine
// is complete (reconnect): a controller that is connected before it has its interface is a segmentation fault of QEMU 7.2.
func (b *BMC) Args() []string {
	if b.inside == 0 {
		return nil
	}
	return []string{
		"-chardev", fmt.Sprintf("socket,id=ipmi,host=127.0.0.1,port=%d,reconnect=1", b.inside),
		"-device", "ipmi-bmc-extern,id=bmc,chardev=ipmi",
		"-device", "isa-ipmi-kcs,bmc=bmc",
	}
}
