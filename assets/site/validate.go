package site

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"firstlight.dev/firstlight/assets/yamldoc"
)

// validate checks what no single value shows. It looks at what is given, with the
// defaults where a given value could collide with one.
func (r *reader) validate(s *Site) {
	u := &uniqueness{reader: r, seen: map[string]string{}}
	u.claim("name", string(s.WithDefaults().Appliance.Hostname), "appliance.hostname")
	r.checkNetworks(s, u)
	r.checkNodeDefaults(&s.NodeDefaults)
	for i := range s.Nodes {
		r.checkNode(&s.Nodes[i], s.Networks.withDefaults(), fmt.Sprintf("nodes[%d]", i), u)
	}

	r.checkDiscover(s)
	r.checkSharedLogin(s)
	r.checkRoom(s)
	r.checkIdentity(s.Nodes)
	r.checkVirtualMedia(s)
	r.checkClusters(s)
	r.checkClusterAPI(s, u)
	r.checkArtifacts(&s.Artifacts)
	r.checkAwayCopy(s.AwayCopy)
	r.checkOIDC(s.Appliance.OIDC)
	r.checkImages(&s.Images)
	r.checkFollow(s.Appliance.Follow)
	r.checkOverlaps(s)
}

// uniqueness reports a thing that occurs twice. What stands for one thing in several
// places (a NIC in macs and in links) is claimed for the same owner.
type uniqueness struct {
	*reader
	seen map[string]string // kind and value -> path of the first
}

func (u *uniqueness) claim(kind, value, path string) {
	if value == "" {
		return
	}
	if first, ok := u.seen[kind+" "+value]; ok {
		u.Report(path, "%s %s is already that of %s; each must be given once", kind, yamldoc.Quote(value), first)
		return
	}
	u.seen[kind+" "+value] = path
}

func (r *reader) checkNetworks(s *Site, u *uniqueness) {
	defaults := s.Networks.withDefaults()
	for _, role := range Roles() {
		n, path := s.Networks.Role(role), "networks."+role
		if d := defaults.Role(role); d != nil {
			u.claim("address", formatAddr(d.Address), path+".address")
		}

		if n == nil {
			continue
		}

		r.checkAttachment(n, path, u)
		r.checkAllowed(s, role)
		d := defaults.Role(role)
		if role != "provisioning" && d.DHCP.Mode == "proxy" {
			r.Report(path+".dhcp.mode", "machines are told what to boot on provisioning only; use server or none")
			continue
		}

		cidr := d.CIDR
		if role == "provisioning" && cidr.Addr().Is6() {
			if !r.checkIPv6Provisioning(s, n) {
				continue
			}
		} else if role == "provisioning" && (cidr.Bits() > 29 || cidr.Bits() < 8) {
			r.Report(path+".cidr", "a network of length %d cannot hold appliance and nodes; use /8 to /29", cidr.Bits())
			continue
		}
		if !cidr.IsValid() {
			if n.Address.IsValid() || n.Gateway.IsValid() || !n.DHCP.Range.IsZero() {
				r.Report(path, "address, gateway and dhcp.range need the network's cidr; add cidr")
			} else if d.DHCP.Mode == "server" {
				r.Report(path+".dhcp", "a server needs the network's cidr; add cidr, address and dhcp.range")
			}
			continue
		}

		r.checkInside(n.Address, cidr, path+".address")
		r.checkRouter(n.Gateway, cidr, path+".gateway")
		r.checkDHCP(role, n, d, path)
		if d.Address.IsValid() && d.Address == n.Gateway && n.Address.IsValid() {
			r.Report(path+".gateway", "this is the address of the appliance; use the router's")
		}
	}
}

func formatAddr(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// checkAttachment checks that a network has one NIC or bond, and that no other network has it
// with the same VLAN tag.
func (r *reader) checkAttachment(n *Network, path string, u *uniqueness) {
	nics := []Interface{n.Interface}
	if n.Bond != nil {
		nics = n.Bond.Interfaces
		if !n.Interface.IsZero() {
			r.Report(path+".bond", "interface is given as well; keep one of the two")
		}
		if len(nics) < 2 {
			r.Report(path+".bond.interfaces", "a bond needs at least two NICs; add one or use interface")
		}
	} else if n.VLAN > 0 && n.Interface.IsZero() {
		r.Report(path+".vlan", "a VLAN is not detected; add interface or bond")
	}
	for i, nic := range nics {
		if nic.IsZero() {
			continue
		}

		at := path + ".interface"
		if n.Bond != nil {
			at = fmt.Sprintf("%s.bond.interfaces[%d]", path, i)
		}

		vlan := ""
		if n.VLAN > 0 {
			vlan = fmt.Sprintf(" vlan %d", n.VLAN)
		}

		u.claim("NIC", nic.String()+vlan, at)
	}
}

func (r *reader) checkInside(a netip.Addr, cidr netip.Prefix, path string) {
	switch {
	case !a.IsValid():
	case !cidr.Contains(a):
		r.Report(path, "%s is outside %s; use an address of that network", a, cidr)
	case a.Is4() && cidr.Bits() < 31 && (a == cidr.Addr() || !cidr.Contains(a.Next())):
		r.Report(path, "%s is the first or last of %s, which no machine can have; use one between", a, cidr)
	}
}

// checkDHCP checks what the appliance is to do as a DHCP server. On provisioning it has an
// address and may find the NIC by itself; a NIC on which nobody answers DHCP is taken for
// provisioning, so another network that the appliance shall serve must name its own.
func (r *reader) checkDHCP(role string, n, d *Network, path string) {
	server := d.DHCP.Mode == "server"
	if role != "provisioning" && server {
		if !n.Address.IsValid() {
			r.Report(path+".dhcp", "the appliance cannot answer DHCP on a network where it has no address; add address")
		}
		if n.Bond == nil && n.Interface.IsZero() {
			r.Report(path+".dhcp", "a network without its own DHCP server is not detected; add interface or bond")
		}
	}

	if lease := n.DHCP.Lease; lease != 0 && !server {
		r.Report(path+".dhcp.lease", "with mode %s no addresses are given; remove the lease", d.DHCP.Mode)
	} else if lease != 0 && (lease < Duration(2*time.Minute) || lease > Duration(720*time.Hour)) {
		r.Report(path+".dhcp.lease", "%s is out of bounds; use 2m to 720h", lease)
	}

	r.checkForeign(n, server, path+".dhcp.foreign")
	r.dhcpRange(n, d, path)
}

func (r *reader) dhcpRange(n, d *Network, path string) {
	at, cidr, given := path+".dhcp.range", d.CIDR, n.DHCP.Range
	if given.IsZero() {
		if d.DHCP.Mode == "server" && d.DHCP.Range.IsZero() {
			r.Report(path+".dhcp.mode", "a server needs addresses to give; add dhcp.range")
		}
		// The default range is only as good as the addresses beside it.
		for _, a := range []netip.Addr{n.Address, n.Gateway} {
			if d.DHCP.Range.Contains(a) {
				r.Report(path, "%s is in the default DHCP range %s; add dhcp.range without it", a, d.DHCP.Range)
			}
		}
		return
	}

	if d.DHCP.Mode != "server" {
		r.Report(at, "with mode %s no addresses are given; remove the range", d.DHCP.Mode)
	}

	for _, end := range []netip.Addr{given.First, given.Last} {
		if !cidr.Contains(end) {
			r.Report(at, "%s of range %s is outside %s; use addresses of that network", end, given, cidr)
			return
		}
	}

	if !given.First.Is4() && path != "networks.provisioning" {
		r.Report(at, "DHCP is served for IPv4 only on this network; remove the range")
		return
	}

	if given.size() > 1<<16 {
		r.Report(at, "range %s has more than 65536 addresses; make it smaller", given)
	}

	if given.First == cidr.Addr() || given.First.Is4() && !cidr.Contains(given.Last.Next()) {
		r.Report(
			at, "range %s holds the first or last address of %s, which no machine can have; leave it out", given, cidr,
		)
	}

	if given.Contains(d.Address) {
		r.Report(at, "range %s holds %s, the address of the appliance; leave it out", given, d.Address)
	}

	if given.Contains(n.Gateway) {
		r.Report(at, "range %s holds %s, the address of the gateway; leave it out", given, n.Gateway)
	}
}

// block is a CIDR, with what it is of.
type block struct {
	path, what string
	cidr       netip.Prefix
}

// checkOverlaps compares every two CIDRs that meet in one routing table: the networks are in all, and the pods and
// services of one cluster do not meet those of another, nor those of the appliance.
func (r *reader) checkOverlaps(s *Site) {
	var networks []block
	d := s.WithDefaults()
	if a := d.InnerAddress(); a != d.Networks.Provisioning.Address {
		networks = append(networks, block{"networks.provisioning.cidr", "the appliance's Kubernetes", netip.PrefixFrom(a, 32)})
	}
	for _, role := range Roles() {
		if n := d.Networks.Role(role); n != nil && n.CIDR.IsValid() {
			networks = append(networks, block{"networks." + role + ".cidr", role, n.CIDR})
		}
	}
	r.checkTable(networks, 0)

	check := func(path string, pods, services netip.Prefix) {
		table := append(slices.Clone(networks), block{path + ".podCIDR", path + ".podCIDR", pods},
			block{path + ".serviceCIDR", path + ".serviceCIDR", services})
		r.checkTable(table, len(networks))
	}
	check("appliance", d.Appliance.PodCIDR, d.Appliance.ServiceCIDR)
	for i, c := range d.Clusters {
		check(fmt.Sprintf("clusters[%d]", i), c.PodCIDR, c.ServiceCIDR)
	}
}

// checkTable compares each CIDR of one routing table with those before it; the first ones were compared.
func (r *reader) checkTable(blocks []block, compared int) {
	for i := compared; i < len(blocks); i++ {
		b := blocks[i]
		for _, a := range blocks[:i] {
			if !a.cidr.Overlaps(b.cidr) {
				continue
			}

			// Point at what is written in the file, which the default of the other may not be.
			at, other := b, a
			if !r.IsGiven(at.path) && r.IsGiven(a.path) {
				at, other = a, b
			}

			if r.IsGiven(other.path) {
				r.Report(at.path, "%s overlaps %s of %s; use another network", at.cidr, other.cidr, other.what)
			} else {
				r.Report(
					at.path, "%s overlaps %s, the default of %s; use another network here or there", at.cidr,
					other.cidr, other.path,
				)
			}
		}
	}
}

func (r *reader) checkNode(n *Node, networks Networks, path string, u *uniqueness) {
	u.claim("name", string(n.Name), path+".name")
	own := map[MAC]bool{}
	for i, m := range n.MACs {
		at := fmt.Sprintf("%s.macs[%d]", path, i)
		u.claim("MAC", string(m), at)
		own[m] = true
	}

	r.claimMAC(n.BootMAC, path+".bootMAC", own, u)
	taken := map[string]string{}
	for i := range n.Links {
		l, at := &n.Links[i], fmt.Sprintf("%s.links[%d]", path, i)
		r.checkLink(l, networks, at, own, u)
		for _, m := range l.nics() {
			nic := fmt.Sprintf("%s vlan %d", m, l.VLAN)
			if first, ok := taken[nic]; ok && first != at {
				r.Report(
					at, "NIC %s is already in %s with the same VLAN; give each link its own", yamldoc.Quote(string(m)),
					first,
				)
			}
			taken[nic] = at
		}
	}

	if n.BMC != nil {
		if a := n.BMC.Address; a != "" {
			u.claim("BMC", a.SystemKey(), path+".bmc.address")
		}
		if n.BMC.Address != "" {
			r.checkLogin(Login{n.BMC.Username, n.BMC.Password}, path+".bmc")
		}
		if check := n.BMC.VerifyCertificate; check != "" && check != CheckNone && n.BMC.Address != "" && !n.BMC.Address.HasTLS() {
			r.Report(
				path+".bmc.verifyCertificate", "there is no certificate with %s; remove the line",
				n.BMC.Address.Scheme(),
			)
		}
	} else if len(n.MACs) == 0 && n.BootMAC == "" {
		r.Report(path, "nothing tells which server this is; add macs or bmc")
	}

	r.checkOS(&n.OS, path+".os")
	r.checkRootDevice(n.RootDevice, path+".rootDevice")
	r.checkLabels(n.Labels, path+".labels")
}
