package daemon

import (
	"context"
	"io"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/clusters/contract/kubeconfig"
	"firstlight.dev/firstlight/daemon/page"
)

// newPage wires the page for browsers to what `firstlightd status` and `firstlightd why` read, and to what other
// commands of firstlightd do.
func (d *Daemon) newPage(secrets *vault.Vault) *page.Server {
	sources := page.Sources{
		Document: d.Document,
		Why:      d.verifier.Why,
		Traces:   d.boot.Traces,
		Unknown:  d.metal.UnknownMachines,
		Site:     d.host.Site,
		Networks: d.host.Addresses,
		Host: func(name string) *metal3api.BareMetalHost {
			return d.metal.Hosts.FindHost(func(h *metal3api.BareMetalHost) bool { return h.Name == name })
		},
		LosableData:        d.metal.LosableData,
		ChangedCertificate: d.metal.ChangedCertificate,
	}
	deeds := page.Deeds{
		API:      d.kube.REST,
		Approve:  d.finder.Approve,
		Adopt:    d.metal.Adopt,
		TrustBMC: d.metal.TrustBMC,
		Reload:   d.reload,

		EndMaintenance: d.metal.EndMaintenance,
		Kubeconfig: func(cluster string) ([]byte, error) {
			return kubeconfig.ReadInstalled(contract.Dir, cluster)
		},
		Bundle: func(ctx context.Context, w io.Writer) error {
			return NewCollector(ctx, status.SocketPath).Write(ctx, w)
		},
	}

	return page.New(d.log, sources, deeds, audit.PageFile, secrets.Authority)
}
