package site

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Values of Cluster.By.
const (
	ByOperator   = "bpa"
	ByClusterAPI = "cluster-api"
)

// ClustersBy are the clusters that one of them makes, of a site with its defaults filled in.
func (s *Site) ClustersBy(by string) []Cluster {
	return slices.DeleteFunc(slices.Clone(s.Clusters), func(c Cluster) bool { return c.By != by })
}

// WithoutClusterAPI is the site without the clusters that Cluster API makes and without their nodes: what installs nodes
// by itself leaves those alone.
func (s *Site) WithoutClusterAPI() *Site {
	named := map[Name]bool{}
	for _, c := range s.ClustersBy(ByClusterAPI) {
		for _, m := range slices.Concat(c.ControlPlane, c.Workers) {
			named[m.Node] = true
		}
	}
	if len(named) == 0 {
		return s
	}

	rest := *s
	rest.Clusters = slices.DeleteFunc(slices.Clone(s.Clusters), func(c Cluster) bool { return c.By == ByClusterAPI })
	rest.Nodes = slices.DeleteFunc(slices.Clone(s.Nodes), func(n Node) bool { return named[n.Name] })
	return &rest
}

// checkClusterAPI checks what clusters that Cluster API makes can have. Its machines are installed from one image, get
// their names from it, and take the hosts that the site names.
func (r *reader) checkClusterAPI(s *Site, u *uniqueness) {
	defaults := s.WithDefaults()
	for i := range s.Clusters {
		c, path := &s.Clusters[i], fmt.Sprintf("clusters[%d]", i)
		if c.By != ByClusterAPI {
			if c.Endpoint.IsValid() {
				r.Report(path+".endpoint", "a cluster that the operator installs has none; add by: %s, or remove the line", ByClusterAPI)
			}
			continue
		}

		if len(c.AddOns) > 0 {
			r.Report(path+".addOns", "Cluster API installs none; remove the line, or by: %s", ByClusterAPI)
		}
		if c.Owner != "" {
			r.Report(path+".owner", "uploads of an owner reach only nodes that the operator installs; remove the line, or by: %s", ByClusterAPI)
		}
		r.checkEndpoint(c.Endpoint, defaults.Networks, path, u)
		if n := len(c.ControlPlane); n > 0 && n%2 == 0 {
			r.Report(path+".controlPlane", "%d nodes have no majority when one fails; name one more, or one less", n)
		}
		r.checkMachines(s, c, defaults, path)
	}
}

// checkEndpoint checks the address of a cluster's API server: one of a network of the rack that nobody else has.
func (r *reader) checkEndpoint(a netip.Addr, networks Networks, path string, u *uniqueness) {
	at := path + ".endpoint"
	if !a.IsValid() {
		r.Report(path, "its API server needs an address that no machine has; add endpoint, outside of the DHCP range")
		return
	}

	u.claim("address", a.String(), at)
	for _, role := range []string{"provisioning", "baremetal"} {
		n := networks.Role(role)
		if n == nil || !n.CIDR.IsValid() || !n.CIDR.Contains(a) {
			continue
		}
		switch {
		case n.DHCP.Mode == "server" && n.DHCP.Range.Contains(a):
			r.Report(at, "%s is in the DHCP range %s and could be given to a machine; use one outside", a, n.DHCP.Range)
		case a == n.Gateway:
			r.Report(at, "%s is the gateway of that network; use another", a)
		default:
			r.checkInside(a, n.CIDR, at)
		}
		return
	}
	r.Report(at, "%s is in no network of the nodes; use a free address of provisioning (%s) or baremetal", a, networks.Provisioning.CIDR)
}

// checkMachines checks the nodes of a cluster that Cluster API makes.
func (r *reader) checkMachines(s *Site, c *Cluster, defaults *Site, path string) {
	if len(c.ControlPlane) == 0 {
		r.Report(path, "Cluster API takes the nodes that are named; add controlPlane with node")
	}

	seen := map[Name]string{}
	image := ""
	for _, role := range []struct {
		key     string
		members []NodeSelector
	}{{"controlPlane", c.ControlPlane}, {"workers", c.Workers}} {
		for i, m := range role.members {
			at := fmt.Sprintf("%s.%s[%d]", path, role.key, i)
			switch others := m.given(); {
			case m.Node == "":
				r.Report(at, "Cluster API takes the nodes that are named; add node, and remove what else is there")
				continue
			case len(others) > 0:
				r.Report(at+"."+others[0], "Cluster API takes the nodes that are named; remove %s", strings.Join(others, ", "))
			}
			if first := seen[m.Node]; first != "" {
				if !strings.HasPrefix(first, path+"."+role.key) { // twice in one role is reported for all clusters
					r.Report(at, "this is the same server as %s; a machine of Cluster API has one role", first)
				}
				continue
			}
			seen[m.Node] = at

			n := slices.IndexFunc(defaults.Nodes, func(n Node) bool { return n.Name == m.Node })
			if n >= 0 {
				r.checkMachine(&s.Nodes[n], fmt.Sprintf("nodes[%d]", n), string(c.Name))
				image = r.checkSameImage(defaults.Nodes[n].OS, fmt.Sprintf("nodes[%d]", n), string(c.Name), image)
			}
		}
	}
}

// given are the keys besides node and name that a selector has.
func (m NodeSelector) given() (keys []string) {
	for _, k := range []struct {
		key string
		has bool
	}{
		{"mac", m.MAC != ""},
		{"cpu", m.CPU != 0},
		{"memory", m.Memory != 0},
		{"sriov", m.SRIOV},
		{"qat", m.QAT},
	} {
		if k.has {
			keys = append(keys, k.key)
		}
	}
	return keys
}

// checkMachine checks one node as it is given.
func (r *reader) checkMachine(n *Node, path, cluster string) {
	if n.BMC == nil {
		r.Report(path, "Cluster API installs it for cluster %s when it is its turn, which needs its BMC; add bmc", cluster)
	}
	if n.BootsFromDisc() {
		r.Report(path+".bmc.address", "Cluster API installs it for cluster %s, with addresses by DHCP; use redfish in place "+
			"of redfish-virtualmedia", cluster)
	} else if len(n.Links) > 0 {
		r.Report(path+".links", "Cluster API installs it for cluster %s, with addresses by DHCP; remove links", cluster)
	}
	if n.OS.Password != (Secret{}) {
		r.Report(path+".os.password", "Cluster API installs it for cluster %s, with the keys of access.sshKeys alone; remove the line", cluster)
	}
}

// checkSameImage checks that a node has the image of those before it, and returns it.
func (r *reader) checkSameImage(os OS, path, cluster, before string) string {
	image := os.Image + " " + string(os.URL) + " " + string(os.SHA256)
	if before != "" && image != before {
		r.Report(path, "its os is another one than that of the nodes before it in cluster %s; Cluster API needs one for all", cluster)
	}
	return image
}
