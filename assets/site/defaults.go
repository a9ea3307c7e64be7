package site

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// WithDefaults is a deep enough copy of the site in which everything has its value that
// follows from the document alone. What only the appliance can find out stays empty: the
// interface of a network whose role is to be detected, an address that comes by DHCP.
// Provisioning and Baremetal are never nil in it.
func (s *Site) WithDefaults() *Site {
	d := *s
	d.Name = cmp.Or(d.Name, "firstlight")
	d.Appliance.Hostname = cmp.Or(d.Appliance.Hostname, d.Name)
	d.Appliance.PodCIDR = cmp.Or(d.Appliance.PodCIDR, netip.MustParsePrefix("10.244.0.0/16"))
	d.Appliance.ServiceCIDR = cmp.Or(d.Appliance.ServiceCIDR, netip.MustParsePrefix("10.96.0.0/16"))
	d.Appliance.OIDC = d.Appliance.OIDC.withDefaults()
	d.Access.Console = cmp.Or(d.Access.Console, "status")
	d.Verification.Timeout = cmp.Or(d.Verification.Timeout, Duration(time.Hour))
	d.Artifacts.Expiry = cmp.Or(d.Artifacts.Expiry, Duration(72*time.Hour))
	if d.Artifacts.Store != nil {
		d.Artifacts.Store = cloneOrZero(d.Artifacts.Store)
		d.Artifacts.Store.Region = cmp.Or(d.Artifacts.Store.Region, "us-east-1")
	}

	d.AwayCopy = d.AwayCopy.withDefaults()
	d.Appliance.Follow = d.Appliance.Follow.withDefaults()
	d.Images.Require = cmp.Or(d.Images.Require, "none")
	d.Networks = d.Networks.withDefaults()
	d.BMC.VerifyCertificate = cmp.Or(d.BMC.VerifyCertificate, CheckPin)
	d.Nodes = slices.Clone(d.Nodes)
	for i := range d.Nodes {
		d.Nodes[i] = d.Nodes[i].inherit(d.NodeDefaults).withDefaults(d.Networks)
		d.Nodes[i].BMC = d.Nodes[i].BMC.withDefaults(d.BMC)
	}

	d.Discover = d.Discover.withDefaults(&d)
	d.Clusters = slices.Clone(d.Clusters)
	for i := range d.Clusters {
		d.Clusters[i] = d.Clusters[i].withDefaults()
	}

	asked := d.sriovSelectors()
	for i, n := range d.Nodes {
		isAsked := asked[string(n.Name)] || slices.ContainsFunc(n.MACs, func(m MAC) bool { return asked[string(m)] })
		d.Nodes[i].IOMMU = n.IOMMU || isAsked || asked[string(n.BootMAC)]
	}

	return &d
}

func (a *AwayCopy) withDefaults() *AwayCopy {
	if a == nil {
		return nil
	}

	d := *a
	d.Every = cmp.Or(d.Every, Duration(24*time.Hour))
	if d.Store != nil {
		d.Store = cloneOrZero(d.Store)
		d.Store.Region = cmp.Or(d.Store.Region, "us-east-1")
	}

	return &d
}

// sriovSelectors are the names and MACs by which clusters require SR-IOV of nodes.
func (s *Site) sriovSelectors() map[string]bool {
	all := map[string]bool{}
	for _, c := range s.Clusters {
		for _, w := range slices.Concat(c.ControlPlane, c.Workers) {
			if w.SRIOV {
				all[string(w.Node)], all[string(w.MAC)] = true, true
			}
		}
	}
	delete(all, "")
	return all
}

func (ns Networks) withDefaults() Networks {
	p := cloneOrZero(ns.Provisioning)
	p.CIDR = cmp.Or(p.CIDR, netip.MustParsePrefix("172.22.0.0/24"))
	p.Address = cmp.Or(p.Address, p.CIDR.Addr().Next())
	p.DHCP.Mode = cmp.Or(p.DHCP.Mode, "server")
	if p.DHCP.Range.IsZero() && p.DHCP.Mode == "server" {
		p.DHCP.Range = usualRange(p.CIDR)
	}

	ns.Provisioning, ns.Baremetal = p, cloneOrZero(ns.Baremetal)
	if ns.BMC != nil {
		ns.BMC = cloneOrZero(ns.BMC)
	}

	for _, role := range Roles() {
		n := ns.Role(role)
		if n == nil {
			continue
		}

		n.MTU = cmp.Or(n.MTU, 1500)
		if n.Bond != nil {
			n.Bond = cloneOrZero(n.Bond)
			n.Bond.Mode = cmp.Or(n.Bond.Mode, "active-backup")
		}

		if n.DHCP.Mode == "" {
			n.DHCP.Mode = "none"
			if !n.DHCP.Range.IsZero() {
				n.DHCP.Mode = "server"
			}
		}

		if n.DHCP.Mode == "server" {
			n.DHCP.Lease = cmp.Or(n.DHCP.Lease, Duration(time.Hour))
			n.DHCP.Foreign = cmp.Or(n.DHCP.Foreign, "silent")
		}
	}

	return ns
}

// usualRange is the 10th to the 100th address of cidr, or in a network too small for
// that its upper half without the broadcast address.
func usualRange(cidr netip.Prefix) Range {
	size := 1 << min(cidr.Addr().BitLen()-cidr.Bits(), 16)
	if size >= 128 {
		return Range{NthAddress(cidr, 10), NthAddress(cidr, 100)}
	}
	return Range{NthAddress(cidr, size/2), NthAddress(cidr, max(size-2, size/2))}
}

// NthAddress is the nth address of a network; the network's own is the 0th.
func NthAddress(cidr netip.Prefix, n int) netip.Addr {
	a := cidr.Masked().Addr()
	for range n {
		a = a.Next()
	}
	return a
}

// StickImage is the name of the image that the stick brings.
const StickImage = "debian-13"

// Roles lists the roles a network can have, in the order of the document.
func Roles() []string { return []string{"provisioning", "bmc", "baremetal"} }

// Role is the network with that role, nil if it was not given.
func (ns Networks) Role(role string) *Network {
	switch role {
	case "provisioning":
		return ns.Provisioning
	case "bmc":
		return ns.BMC
	case "baremetal":
		return ns.Baremetal
	}
	return nil
}

func (n Node) withDefaults(networks Networks) Node {
	if i := n.discLink(); n.BootMAC == "" && i >= 0 {
		n.BootMAC = n.Links[i].nics()[0]
	}

	if n.BootMAC == "" && len(n.MACs) > 0 {
		n.BootMAC = n.MACs[0]
	}

	n.BootMode = cmp.Or(n.BootMode, "UEFI")
	if n.OS.URL == "" {
		n.OS.Image = cmp.Or(n.OS.Image, StickImage)
	} else {
		n.OS.Format = cmp.Or(n.OS.Format, "qcow2")
	}

	n.OS.UserData = n.OS.UserDataKind()
	n.OS.Username = cmp.Or(n.OS.Username, "firstlight")
	n.Links = slices.Clone(n.Links)
	for i := range n.Links {
		n.Links[i] = n.Links[i].withDefaults(networks)
	}

	return n
}

func (l Link) withDefaults(networks Networks) Link {
	if l.Bond != nil {
		l.Bond = cloneOrZero(l.Bond)
		l.Bond.Mode = cmp.Or(l.Bond.Mode, "active-backup")
	}

	n := networks.Role(l.Network)
	if n != nil {
		l.MTU = cmp.Or(l.MTU, n.MTU)
	}

	l.MTU = cmp.Or(l.MTU, 1500)
	if l.Address.IsZero() {
		l.Address.Method = "dhcp"
		if l.Network == "data" {
			l.Address.Method = "none"
		}
	}

	if n == nil || l.Address.Method != "static" {
		return l
	}

	if l.Network == "baremetal" && n.CIDR.IsValid() && n.CIDR.Contains(l.Address.Prefix.Addr()) {
		l.Gateway = cmp.Or(l.Gateway, n.Gateway)
	}

	if len(l.DNS) == 0 {
		l.DNS = slices.Clone(n.DNS)
	}

	return l
}

func (c Cluster) withDefaults() Cluster {
	c.By = cmp.Or(c.By, ByOperator)
	c.PodCIDR = cmp.Or(c.PodCIDR, netip.MustParsePrefix("10.244.64.0/18"))
	c.ServiceCIDR = cmp.Or(c.ServiceCIDR, netip.MustParsePrefix("10.244.0.0/18"))
	c.ControlPlane, _ = expandSelectors(c.controlPlane(), "master")
	c.Workers, _ = expandSelectors(c.Workers, "worker")
	for i, w := range c.Workers {
		for _, m := range c.ControlPlane {
			if w == (NodeSelector{Name: m.Name, Count: 1}) {
				c.Workers[i] = m // both roles
			}
		}
	}

	return c
}

// controlPlane is what is asked for, or any one node.
func (c Cluster) controlPlane() []NodeSelector {
	if len(c.ControlPlane) == 0 {
		return []NodeSelector{{}}
	}
	return c.ControlPlane
}

// expandSelectors makes one member of count 1 of each node that is asked for; from is the entry
// it came from. Those without a name are numbered from 1 in list order; those of a named
// entry with a count get its name and a number.
func expandSelectors(members []NodeSelector, stem string) (all []NodeSelector, from []int) {
	for i, m := range members {
		count, name := cmp.Or(m.Count, 1), m.Name
		m.Count = 1
		for k := range count {
			switch {
			case name == "":
				m.Name = Name(fmt.Sprintf("%s-%d", stem, len(all)+1))
			case count > 1:
				m.Name = Name(fmt.Sprintf("%s-%d", name, k+1))
			}
			all, from = append(all, m), append(from, i)
		}
	}
	return all, from
}

// cloneOrZero is a copy of *p, or a zero value if p is nil.
func cloneOrZero[T any](p *T) *T {
	var c T
	if p != nil {
		c = *p
	}
	return &c
}
