package site

import (
	"fmt"
	"strings"

	"firstlight.dev/firstlight/assets/yamldoc"
)

// checkIdentity reports nodes that nothing tells apart. A server without a MAC is found by what its own system says of
// its BMC: the address alone, without a port. By Redfish the BMC names the MACs.
func (r *reader) checkIdentity(nodes []Node) {
	first := map[string]int{}
	for i := range nodes {
		if b := nodes[i].BMC; b != nil && b.Address != "" {
			if host := strings.ToLower(b.Address.Host()); first[host] == 0 {
				first[host] = i + 1
			}
		}
	}

	for i := range nodes {
		n := &nodes[i]
		if n.BMC == nil || n.BMC.Address.Scheme() != "ipmi" || n.BootMAC != "" || len(n.MACs) > 0 {
			continue
		}

		host := strings.ToLower(n.BMC.Address.Host())
		other := first[host] - 1
		if other == i {
			other = nextWithBMC(nodes, i, host)
		}
		if other >= 0 {
			r.Report(fmt.Sprintf("nodes[%d]", i), "without macs it is found by the address of its BMC, and nodes[%d] has %s too; "+
				"add macs", other, yamldoc.Quote(host))
		}
	}
}

// nextWithBMC is the next node whose BMC is at a host, -1 if there is none.
func nextWithBMC(nodes []Node, after int, host string) int {
	for i := after + 1; i < len(nodes); i++ {
		if b := nodes[i].BMC; b != nil && strings.ToLower(b.Address.Host()) == host {
			return i
		}
	}
	return -1
}
