package installer

import (
	"context"
	"path"
	"strings"

	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// lease prints the file by which systemd-networkd configures the interface that has the address $1, if the
// address ends with a lease; networkd writes the file's name into its state of the interface.
const lease = `
command -v ip >/dev/null || exit 0
address=$1
set -- $(ip -4 -o address show dynamic to "$address")
test $# -gt 1 || exit 0
index=$(cat "/sys/class/net/${2%%@*}/ifindex")
sed -n 's/^NETWORK_FILE=//p' "/run/systemd/netif/links/$index" 2>/dev/null || true
`

// leaseUnitFor tells networkd to keep what a lease brought after its end. It is a drop-in to the file that
// is there, whoever wrote that: cloud-init, netplan, a person.
func leaseUnitFor(networkFile string) unit {
	return unit{"systemd-networkd.service", []file{{"/etc/systemd/network/" + path.Base(networkFile) + ".d/60-firstlight.conf", 0o644, []byte(
		"# The appliance, which gives leases, may be switched off: the node keeps its address.\n[Network]\nKeepConfiguration=dhcp\n")}}}
}

// leaseUnit is what keeps the node's address beyond its lease; nil if the address does not end, or if
// networkd does not manage it.
func (n *node) leaseUnit(ctx context.Context) (*unit, error) {
	out, err := n.shell.RunScript(ctx, lease, n.Addr.String())
	if err != nil {
		return nil, err
	}

	name := strings.TrimSpace(out)
	if name == "" {
		return nil, nil
	}

	u := leaseUnitFor(name)
	return &u, nil
}

func (n *node) leaseDone(ctx context.Context) error {
	u, err := n.leaseUnit(ctx)
	if err != nil || u == nil {
		return err
	}
	return n.checkRunning(ctx, *u)
}

// leaseDo starts networkd anew, which leaves links and addresses as they are; a reload would give the
// lease back and ask for another.
func (n *node) leaseDo(ctx context.Context, report bringup.Report) error {
	u, err := n.leaseUnit(ctx)
	if err != nil || u == nil {
		return err
	}

	report("keeping its address beyond the lease")
	return n.start(ctx, *u)
}
