package daemon

import (
	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/page"
)

// newPage wires the page for browsers to what `firstlightd status` and `firstlightd why` read.
func (d *Daemon) newPage(secrets *vault.Vault) *page.Server {
	return page.New(d.log, page.Sources{
		Document: d.Document,
		Why:      d.verifier.Why,
		Traces:   d.boot.Traces,
		Unknown:  d.metal.UnknownMachines,
		Site:     d.host.Site,
		Networks: d.host.Addresses,
		Host: func(name string) *metal3api.BareMetalHost {
			return d.metal.Hosts.FindHost(func(h *metal3api.BareMetalHost) bool { return h.Name == name })
		},
	}, secrets.Authority)
}
