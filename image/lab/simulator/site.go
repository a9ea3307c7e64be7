package simulator

import (
	"fmt"
	"strings"
)

// SiteEntry is the host's entry in the nodes of a site document. more are further lines of it, such as
// `os: {…}`, without indentation.
func (h *Server) SiteEntry(more ...string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "  - name: %s\n    macs: [%q]\n", h.Name, h.MAC)
	fmt.Fprintf(
		&out, "    bmc: {address: %q, username: %s, password: %s}\n", h.BMC(), h.simulator.Username(),
		h.simulator.Password(),
	)
	for _, line := range more {
		fmt.Fprintf(&out, "    %s\n", line)
	}

	return out.String()
}

// SiteDocument is a site document of all hosts, the provisioning network on the NIC named.
func (f *Simulator) SiteDocument(nic string, more ...string) string {
	var out strings.Builder
	room := ""
	if len(f.hosts) > 91 { // the default range
		room = ", cidr: 172.22.0.0/20, dhcp: {range: 172.22.1.0-172.22.15.250}"
	}
	fmt.Fprintf(&out, "name: fleet\nnetworks: {provisioning: {interface: %s%s}}\n", nic, room)
	if len(f.hosts) > 0 {
		out.WriteString("nodes:\n")
	}
	for _, h := range f.hosts {
		out.WriteString(h.SiteEntry(more...))
	}

	return out.String()
}
