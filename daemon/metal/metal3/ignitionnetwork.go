package metal3

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	ignition "github.com/coreos/ignition/v2/config/v3_3/types"
	"github.com/google/uuid"
)

// An image that reads Ignition has its network set up by systemd-networkd (Flatcar) or by NetworkManager (Fedora
// CoreOS), and does not say by which. It gets the files of both: each program leaves those of the other alone.

// networkdFiles are a node's links for systemd-networkd (systemd.network(5), systemd.netdev(5)). NICs are known by the
// MACs that they have from the factory: in a bond they have another one.
func networkdFiles(data netData) (files []ignition.File) {
	for _, l := range data.Links {
		name := "/etc/systemd/network/10-firstlight-" + l.ID
		match := "Name=" + l.ID
		if l.Type == "phy" {
			match = "PermanentMACAddress=" + l.MAC + "\nType=ether"
		} else {
			files = append(files, newFile(name+".netdev", 0o644, networkdDevice(l)))
		}

		var b strings.Builder
		fmt.Fprintf(&b, "[Match]\n%s\n\n[Link]\n", match)
		if l.MTU != 0 {
			fmt.Fprintf(&b, "MTUBytes=%d\n", l.MTU)
		}

		networks := data.networksOn(l)
		if len(networks) == 0 {
			b.WriteString("RequiredForOnline=no\n")
		}

		b.WriteString("\n[Network]\n")
		if bond := data.bondOf(l); bond != "" {
			fmt.Fprintf(&b, "Bond=%s\n", bond)
		}
		for _, v := range data.vlansOn(l) {
			fmt.Fprintf(&b, "VLAN=%s\n", v.ID)
		}
		for _, n := range networks {
			writeNetworkd(&b, n)
		}
		if len(networks) > 0 {
			for _, d := range data.Services {
				fmt.Fprintf(&b, "DNS=%s\n", d.Address)
			}
		}
		files = append(files, newFile(name+".network", 0o644, b.String()))
	}
	return files
}

// networkdDevice makes a bond or a VLAN.
func networkdDevice(l netLink) string {
	if l.Type == "vlan" {
		return fmt.Sprintf("[NetDev]\nName=%s\nKind=vlan\n\n[VLAN]\nId=%d\n", l.ID, l.VLANID)
	}
	return fmt.Sprintf("[NetDev]\nName=%s\nKind=bond\nMACAddress=%s\n\n[Bond]\nMode=%s\nMIIMonitorSec=%dms\n",
		l.ID, l.MAC, l.BondMode, l.BondMiimon)
}

func writeNetworkd(b *strings.Builder, n netNetwork) {
	if family, ok := strings.CutSuffix(n.Type, "_dhcp"); ok {
		fmt.Fprintf(b, "DHCP=%s\n", family)
		return
	}
	fmt.Fprintf(b, "Address=%s\n", n.prefix())
	for _, r := range n.Routes {
		fmt.Fprintf(b, "Gateway=%s\n", r.Gateway)
	}
}

// networkManagerFiles are a node's links as connections of NetworkManager (nm-settings-keyfile(5)).
func networkManagerFiles(data netData) (files []ignition.File) {
	for _, l := range data.Links {
		var b strings.Builder
		fmt.Fprintf(&b, "[connection]\nid=%s\nuuid=%s\n", l.ID, connectionUUID(l.ID))
		if bond := data.bondOf(l); bond != "" {
			fmt.Fprintf(&b, "master=%s\nslave-type=bond\n", connectionUUID(bond))
		}

		switch l.Type {
		case "phy":
			fmt.Fprintf(&b, "type=ethernet\n\n[ethernet]\nmac-address=%s\n", l.MAC)
		case "bond":
			fmt.Fprintf(&b, "type=bond\ninterface-name=%s\n\n[bond]\nmode=%s\nmiimon=%d\n", l.ID, l.BondMode, l.BondMiimon)
			fmt.Fprintf(&b, "\n[ethernet]\ncloned-mac-address=%s\n", l.MAC)
		case "vlan":
			fmt.Fprintf(&b, "type=vlan\ninterface-name=%s\n\n[vlan]\nid=%d\nparent=%s\n", l.ID, l.VLANID, connectionUUID(l.VLANLink))
			b.WriteString("\n[ethernet]\n")
		}
		if l.MTU != 0 {
			fmt.Fprintf(&b, "mtu=%d\n", l.MTU)
		}

		if data.bondOf(l) == "" {
			writeConnectionAddresses(&b, data, data.networksOn(l))
		}
		files = append(files, newFile(
			"/etc/NetworkManager/system-connections/firstlight-"+l.ID+".nmconnection", 0o600, b.String(),
		))
	}
	return files
}

// writeConnectionAddresses writes a connection's sections ipv4 and ipv6.
func writeConnectionAddresses(b *strings.Builder, data netData, networks []netNetwork) {
	for _, family := range []string{"ipv4", "ipv6"} {
		var addresses []string
		method := map[string]string{"ipv4": "disabled", "ipv6": "auto"}[family]
		for _, n := range networks {
			switch {
			case n.Type == family:
				address := n.prefix().String()
				for _, r := range n.Routes {
					address += "," + r.Gateway
				}
				addresses, method = append(addresses, address), "manual"
			case n.Type == family+"_dhcp" && method != "manual":
				method = "auto"
			}
		}

		fmt.Fprintf(b, "\n[%s]\nmethod=%s\n", family, method)
		for i, a := range addresses {
			fmt.Fprintf(b, "address%d=%s\n", i+1, a)
		}
		if dns := data.resolvers(family); dns != "" && len(networks) > 0 && method != "disabled" {
			fmt.Fprintf(b, "dns=%s\n", dns)
		}
	}
}

// connectionUUID is that of the connection of a link: the same whenever it is made.
func connectionUUID(link string) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte("firstlight "+link)).String()
}

// networksOn are the networks on a link, not those on its VLANs.
func (d netData) networksOn(l netLink) (on []netNetwork) {
	for _, n := range d.Networks {
		if n.Link == l.ID {
			on = append(on, n)
		}
	}
	return on
}

func (d netData) vlansOn(l netLink) (on []netLink) {
	for _, v := range d.Links {
		if v.VLANLink == l.ID {
			on = append(on, v)
		}
	}
	return on
}

// bondOf is the bond that a NIC is in; "": none.
func (d netData) bondOf(l netLink) string {
	i := slices.IndexFunc(d.Links, func(b netLink) bool { return slices.Contains(b.BondLinks, l.ID) })
	if i < 0 {
		return ""
	}
	return d.Links[i].ID
}

// resolvers are those of an address family, each with the end that a keyfile's list wants.
func (d netData) resolvers(family string) string {
	var b strings.Builder
	for _, s := range d.Services {
		if a, err := netip.ParseAddr(s.Address); err == nil && a.Is4() == (family == "ipv4") {
			b.WriteString(s.Address + ";")
		}
	}
	return b.String()
}

// prefix is a static address with the length of its network.
func (n netNetwork) prefix() netip.Prefix {
	address, mask := netip.MustParseAddr(n.Address), net.ParseIP(n.Netmask)
	if v4 := mask.To4(); v4 != nil && address.Is4() {
		mask = v4
	}
	length, _ := net.IPMask(mask).Size()
	return netip.PrefixFrom(address, length)
}
