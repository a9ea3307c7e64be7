package host

import (
	"net/netip"

	"firstlight.dev/firstlight/assets/site"
)

// Kind is a kind of link.
type Kind string

// Kinds, by the kernel's names.
const (
	KindNIC    Kind = "device"
	KindBond   Kind = "bond"
	KindVLAN   Kind = "vlan"
	KindBridge Kind = "bridge"
)

// Link is one interface as it shall be.
type Link struct {
	Name    string
	Kind    Kind
	Master  string       // bridge or bond it belongs to
	Parent  string       // VLAN: the link below
	VLAN    int          // VLAN: the tag
	Mode    string       // bond
	MTU     int          // bytes
	MAC     string       // "": left alone
	Address netip.Prefix // static address; invalid: none
	Inner   netip.Prefix // another one, for the appliance itself; invalid: none
	Gateway netip.Addr   // default route; invalid: none
	DHCP    bool         // an address is asked for
}

// shortRole names a role in the 15 bytes that the kernel leaves for an interface's name.
func shortRole(role string) string {
	if role == Provisioning {
		return "prov"
	}
	return role
}

// Layout is every link that the assignments need, each after those it stands on: the
// bridge, then its NICs, bond and VLAN. The bridge has the address, so that the address is
// there without a link.
func Layout(all []Assignment, networks site.Networks) []Link {
	var links []Link
	nicMaster := map[string]int{} // NIC's name to its place in links
	for _, a := range all {
		n := networks.Role(a.Role)
		if n == nil {
			n = &site.Network{}
		}

		bridge := Link{Name: a.Role, Kind: KindBridge, MTU: n.MTU}
		if n.Address.IsValid() && n.CIDR.IsValid() {
			bridge.Address = netip.PrefixFrom(n.Address, n.CIDR.Bits())
			bridge.Gateway = n.Gateway
			if a.Role == Provisioning && n.Address.Is6() {
				bridge.Inner = netip.PrefixFrom(site.InnerIPv4(), 32)
			}
		} else {
			bridge.DHCP = a.Role != Provisioning && len(a.NICs) > 0
		}

		if len(a.NICs) > 0 {
			bridge.MAC = a.NICs[0].MAC
		}

		links = append(links, bridge)
		if len(a.NICs) == 0 {
			continue
		}

		port := Link{Name: a.NICs[0].Name, Kind: KindNIC, MTU: n.MTU}
		if n.Bond != nil {
			port = Link{Name: "bond-" + shortRole(a.Role), Kind: KindBond, Mode: n.Bond.Mode, MTU: n.MTU}
			links = append(links, port)
			for _, nic := range a.NICs {
				links = append(links, Link{Name: nic.Name, Kind: KindNIC, Master: port.Name, MTU: n.MTU})
			}
		}

		if n.VLAN == 0 {
			port.Master = a.Role
		}

		if i, seen := nicMaster[port.Name]; seen {
			links[i].MTU = max(links[i].MTU, port.MTU) // one NIC, several VLANs
			if port.Master != "" {
				links[i].Master = port.Master
			}
		} else if n.Bond != nil {
			for i := range links {
				if links[i].Name == port.Name {
					links[i] = port
				}
			}
		} else {
			nicMaster[port.Name] = len(links)
			links = append(links, port)
		}

		if n.VLAN != 0 {
			links = append(links, Link{
				Name:   "vlan-" + shortRole(a.Role),
				Kind:   KindVLAN,
				Parent: port.Name,
				VLAN:   n.VLAN,
				Master: a.Role,
				MTU:    n.MTU,
			})
		}
	}

	return links
}
