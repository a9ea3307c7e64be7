package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/api"
	"firstlight.dev/firstlight/daemon/appliance/console"
	"firstlight.dev/firstlight/daemon/appliance/host"
	"firstlight.dev/firstlight/daemon/appliance/supportbundle"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/metal/provisioning"
	"firstlight.dev/firstlight/daemon/metal/verify/shell"
)

// askLog is what a node is asked for the support bundle: any Linux answers most of it.
const askLog = `exec 2>&1; export LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin
for c in date uptime "df -h" "ip -details addr" "ip route" "ip -6 route" "cat /etc/resolv.conf" "systemctl --failed --no-pager" "cloud-init status --long" \
	"tail -n 300 /var/log/cloud-init-output.log" "sudo -n journalctl --boot --no-pager --output=short-precise --lines=5000"; do
	echo "== $c"; $c
done
`

// NewCollector collects a support bundle on this machine. The daemon behind socket, and the Kubernetes that connect leads
// to, are asked and may be dead.
func NewCollector(
	ctx context.Context, socket string, connect func() (*rest.Config, error),
) *supportbundle.Collector {
	client := api.Client{Socket: socket}
	asking, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	document, err := client.Status(asking)
	raw := func(path string) func(context.Context) ([]byte, error) {
		return func(ctx context.Context) ([]byte, error) {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			return client.Get(ctx, path)
		}
	}
	c := &supportbundle.Collector{Connect: connect, Sources: []supportbundle.Source{
		{Name: "status.json", Get: raw("/v1/status")},
		{
			Name: "status.txt",
			Get: func(context.Context) ([]byte, error) {
				return []byte(console.RenderText(document, time.Now())), err
			},
		},
		{Name: "why.json", Get: raw("/v1/why")},
		{Name: "wire.json", Get: raw("/v1/records")},
	}}
	h := &host.Host{Log: slog.New(slog.DiscardHandler)}
	unread := checkState()
	if unread == nil {
		unread = h.SiteDo(ctx, func(string) {})
	}
	if unread != nil {
		c.Sources = append(
			c.Sources,
			supportbundle.Source{Name: "nodes", Get: func(context.Context) ([]byte, error) { return nil, unread }},
		)
		return c
	}

	keys := vault.New(h.MachineID)
	m := provisioning.New(provisioning.Deps{Log: h.Log, Site: h.Site, Vault: keys})
	c.Sources = append(c.Sources, supportbundle.Source{
		Name: "ironic.json",
		Get: func(ctx context.Context) ([]byte, error) {
			nodes, err := m.IronicNodes(ctx)
			if err != nil {
				return nil, err
			}
			return json.MarshalIndent(nodes, "", "  ")
		},
	})
	for _, n := range h.Site().Nodes {
		c.Sources = append(c.Sources, supportbundle.Source{
			Name: fmt.Sprintf("nodes/%s.log", n.Name),
			Get: func(ctx context.Context) ([]byte, error) {
				return nodeLog(ctx, keys.Keys, n, document)
			},
		})
	}

	return c
}

// checkState refuses a machine without an appliance's secrets: they would be made to ask Ironic and nodes that are
// another machine's, if there are any.
func checkState() error {
	if _, err := os.Stat(vault.SecretDir); err != nil {
		return fmt.Errorf("the state of no appliance is here: %w", err)
	}
	return nil
}

// nodeLog asks an installed node for its log. One that was never installed has no host key.
func nodeLog(ctx context.Context, keys *vault.Keys, n site.Node, document status.Document) ([]byte, error) {
	t := shell.Target{Name: string(n.Name), User: n.OS.Username}
	for _, known := range document.Nodes {
		if a, err := netip.ParseAddr(known.Address); err == nil && known.Name == t.Name {
			t.Addresses = append(t.Addresses, a)
		}
	}

	for _, l := range n.Links {
		if l.Address.Method == "static" {
			t.Addresses = append(t.Addresses, l.Address.Prefix.Addr())
		}
	}

	var err error
	if t.Key, err = keys.AccessSigner(); err != nil {
		return nil, err
	}
	if t.HostKey, err = keys.HostPublicKey(n.Name); err != nil {
		return nil, err
	}

	return shell.Output(ctx, t, askLog)
}
