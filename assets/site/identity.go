package site

import (
	"fmt"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/yamldoc"
)

// checkIdentity reports nodes that nothing tells apart. A server without a MAC is found by what its own system says of
// its BMC: the address alone, without a port. By Redfish the BMC names the MACs.
func (r *reader) checkIdentity(nodes []Node) {
	of := map[string][]int{} // nodes by the host of their BMC
	for i := range nodes {
		if b := nodes[i].BMC; b != nil && b.Address != "" {
			host := strings.ToLower(b.Address.Host())
			of[host] = append(of[host], i)
		}
	}

	for i := range nodes {
		n := &nodes[i]
		if n.BMC == nil || n.BMC.Address.Scheme() != "ipmi" || n.BootMAC != "" || len(n.MACs) > 0 {
			continue
		}

		host := strings.ToLower(n.BMC.Address.Host())
		if k := slices.IndexFunc(of[host], func(other int) bool { return other != i }); k >= 0 {
			r.Report(fmt.Sprintf("nodes[%d]", i), "without macs it is found by the address of its BMC, and nodes[%d] has %s too; "+
				"add macs", of[host][k], yamldoc.Quote(host))
		}
	}
}
