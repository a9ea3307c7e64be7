package icn

import (
	"net"
	"net/netip"
	"strings"
)

// rack is what nodes.json tells of the networks around the servers.
type rack struct {
	bmcs     []netip.Addr   // addresses of BMCs
	provider []netip.Prefix // static addresses of the servers on the provider network
}

// surveyRack reads the addresses of a nodes.json.
func surveyRack(doc value) (r rack) {
	for _, n := range doc.get("nodes").items {
		host := n.get("ipmi_driver_info").get("address").text
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if a, err := netip.ParseAddr(host); err == nil {
			r.bmcs = append(r.bmcs, a)
		}

		roles := map[string]string{}
		for _, l := range n.get("net").get("links").items {
			roles[l.get("id").text], _ = networkRole(l.get("id").text)
		}
		for _, network := range n.get("net").get("networks").items {
			address := withLength(network.get("ip_address").text, network.get("netmask").text)
			if p, err := netip.ParsePrefix(address); err == nil && roles[network.get("link").text] == "baremetal" {
				r.provider = append(r.provider, p.Masked())
			}
		}
	}
	return r
}

// providerNetwork is the network of the servers' own addresses that holds an address; false if there is none.
func (r rack) providerNetwork(a netip.Addr) (netip.Prefix, bool) {
	for _, p := range r.provider {
		if p.Contains(a) {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// isMerged reports whether the BMCs are on the servers' own network, which ICN allowed. A BMC there, or the jump
// host's address on the IPMI LAN (which may be invalid), shows it.
func (r rack) isMerged(jumpHost netip.Addr) bool {
	for _, a := range append([]netip.Addr{jumpHost}, r.bmcs...) {
		if _, ok := r.providerNetwork(a); ok && a.IsValid() {
			return true
		}
	}
	return false
}

// noteReach says what the two files leave open of the way to the BMCs.
func (im *importer) noteReach(file string) {
	if len(im.rack.bmcs) == 0 {
		return
	}

	var beyond []string
	for _, a := range im.rack.bmcs {
		if !im.outer.Contains(a) {
			beyond = append(beyond, a.String())
		}
	}

	list := strings.Join(beyond, ", ")
	switch {
	case im.outerRole == "":
		im.addNote(file, 0, "bmc", "nothing says by which NIC the appliance reaches the BMCs (%s): give networks.bmc, or "+
			"networks.baremetal if they are in the servers' own network, an interface and an address", list)
		im.markMissing()
	case !im.outer.IsValid():
		im.addNote(file, 0, "bmc", "the BMCs (%s) are reached by networks.%s, whose address is not given: the appliance asks for "+
			"one by DHCP; write networks.%s.address and cidr if no DHCP server is there", list, im.outerRole, im.outerRole)
	case len(beyond) > 0:
		im.addNote(file, 0, "bmc", "%s: in no network of this file, so reached by the router of baremetal, else of bmc; write "+
			"its gateway, or correct networks.%s.cidr", list, im.outerRole)
		if !has(im.doc, "networks", "baremetal", "gateway") {
			im.markMissing()
		}
	}
}

// markMissing says of the last note that nodes cannot be installed before.
func (im *importer) markMissing() { im.notes[len(im.notes)-1].IsMissing = true }
