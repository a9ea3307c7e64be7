package fleet

import (
	"fmt"
	"strings"
)

// Node is the host's entry in the nodes of a site document. more are further lines of it, such as
// `os: {…}`, without indentation.
func (h *Host) Node(more ...string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "  - name: %s\n    macs: [%q]\n", h.Name, h.MAC)
	fmt.Fprintf(&out, "    bmc: {address: %q, username: %s, password: %s}\n", h.BMC(), h.fleet.Username(), h.fleet.Password())
	for _, line := range more {
		fmt.Fprintf(&out, "    %s\n", line)
	}
	return out.String()
}

// Site is a site document of all hosts, the provisioning network on the NIC named.
func (f *Fleet) Site(nic string, more ...string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "name: fleet\nnetworks: {provisioning: {interface: %s}}\nnodes:\n", nic)
	for _, h := range f.hosts {
		out.WriteString(h.Node(more...))
	}
	return out.String()
}
