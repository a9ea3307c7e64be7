package site

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/yamldoc"
)

// BootsFromDisc reports whether a node is installed by virtual media: its BMC puts a disc into its drive, and nothing
// of it is asked for by DHCP or TFTP.
func (n Node) BootsFromDisc() bool { return n.BMC != nil && n.BMC.Address.HasVirtualMedia() }

// DiscLink is how a node that boots from a disc is on the provisioning network until it is installed: its first link
// there with a static address. ok is false if it has none, and for every other node.
func (n Node) DiscLink() (l Link, ok bool) {
	i := n.discLink()
	if i < 0 {
		return Link{}, false
	}
	return n.Links[i], true
}

// discLink is the index of DiscLink; -1: there is none.
func (n Node) discLink() int {
	if !n.BootsFromDisc() {
		return -1
	}
	return slices.IndexFunc(n.Links, func(l Link) bool {
		return l.Network == "provisioning" && len(l.nics()) > 0 &&
			l.Address.Method == "static" && l.Address.Prefix.Addr().Is4()
	})
}

// DiscNetwork is the network from which BMCs ask the appliance for discs: the one that has their addresses, else the
// one by which the appliance goes out to them. It is "" if no node boots from a disc. The site has its defaults filled
// in.
func (s *Site) DiscNetwork() string {
	for _, n := range s.Nodes {
		if n.BootsFromDisc() {
			return s.bmcNetwork(n.BMC.Address)
		}
	}
	return ""
}

// DiscAddress is the appliance's address where it serves discs; invalid if no node boots from one.
func (s *Site) DiscAddress() netip.Addr {
	if n := s.Networks.Role(s.DiscNetwork()); n != nil {
		return n.Address
	}
	return netip.Addr{}
}

func (s *Site) bmcNetwork(a BMCAddress) string {
	addr, _ := netip.ParseAddr(a.Host())
	for _, role := range Roles() {
		if n := s.Networks.Role(role); n != nil && n.CIDR.IsValid() && n.CIDR.Contains(addr) {
			return role
		}
	}
	if s.Networks.BMC != nil {
		return "bmc"
	}
	return "baremetal"
}

// checkVirtualMedia checks the nodes that boot from discs. No lease says which node a machine is, so the site does.
func (r *reader) checkVirtualMedia(s *Site) {
	d := s.WithDefaults()
	network, first, byBMC := d.DiscNetwork(), "", map[string]string{}
	for i, n := range d.Nodes {
		if !n.BootsFromDisc() {
			continue
		}

		path := fmt.Sprintf("nodes[%d]", i)
		r.checkDiscNode(n, path)
		host := n.BMC.Address.Host()
		addr, err := netip.ParseAddr(host)
		switch other := byBMC[host]; {
		case err != nil || !addr.Is4():
			r.Report(path+".bmc.address", "%s is not an IPv4 address, by which the BMC is known when it asks for its disc; "+
				"write its address", yamldoc.Quote(host))
			continue
		case other != "":
			r.Report(path+".bmc.address", "%s has the same BMC, and a BMC that asks for a disc is known by its address alone; "+
				"use redfish in place of redfish-virtualmedia", other)
		}
		byBMC[host] = path

		switch here := d.bmcNetwork(n.BMC.Address); {
		case here != network:
			r.Report(path+".bmc.address", "it is on %s, and the BMC of %s on %s; BMCs ask for discs on one network",
				here, first, network)
		case first == "" && !d.DiscAddress().IsValid():
			r.Report("networks."+network, "BMCs ask the appliance for discs there; add its address, and cidr")
		}

		if first == "" {
			first = path
		}
	}
}

// checkDiscNode checks what a node needs besides its BMC. It has its defaults filled in.
func (r *reader) checkDiscNode(n Node, path string) {
	if n.BootMode == "legacy" {
		r.Report(path+".bootMode", "the disc starts by UEFI alone; use UEFI or UEFISecureBoot")
	}

	i := n.discLink()
	if i < 0 {
		r.Report(path, "its BMC is told to install it by virtual media, without DHCP; add a link to provisioning with mac "+
			"and a static address, or use redfish in place of redfish-virtualmedia")
		return
	}

	l, at := n.Links[i], fmt.Sprintf("%s.links[%d]", path, i)
	if l.VLAN > 0 {
		r.Report(at+".vlan", "the disc's ramdisk uses this link without a tag; remove the line")
	}
	if nics := l.nics(); !slices.Contains(nics, n.BootMAC) {
		var names []string
		for _, m := range nics {
			names = append(names, string(m))
		}
		r.Report(path+".bootMAC", "%s is not the NIC of %s, whose address the ramdisk takes; use %s", n.BootMAC,
			strings.TrimPrefix(at, path+"."), strings.Join(names, " or "))
	}
}
