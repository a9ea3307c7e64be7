package daemon

import (
	"context"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/host"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/metal/discovery"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
	"firstlight.dev/firstlight/pxe/lease"
)

// discoveredFile has the machines that became nodes, and what was tried on BMCs. It holds passwords.
const discoveredFile = vault.SecretDir + "/discovered.json"

// newFinder wires what makes nodes of machines that the site does not name. All who install and serve nodes take the
// site from it.
func (d *Daemon) newFinder() *discovery.Finder {
	dataMounted := d.stageReady("data-mounted")
	return &discovery.Finder{
		Path:    discoveredFile,
		Ready:   func() bool { return d.runner != nil && dataMounted() },
		Named:   d.host.Site,
		Unknown: func() []status.UnknownMachine { return d.metal.Unknown.List(time.Now()) },
		Hosts: func() ([]discovery.Known, bool) {
			hosts, current := d.metal.Hosts.List()
			return knownHosts(hosts), current
		},
		Login:   bmc.Client{}.Login, // by IPMI, which has no certificate
		Changed: func() { d.metal.Recheck(); d.runner.Recheck() },
		Log:     d.log.With("part", "discovery"),

		Leases:   func() []discovery.Lease { return bmcLeases(d.networkDHCP.ActiveLeases(host.BMC)) },
		Presence: bmc.AskPresence,
		Identify: func(ctx context.Context, b site.BMC) (site.BMCAddress, bmc.Identity, bmc.Answer) {
			return bmc.Client{Pins: d.metal.Pins}.Identify(ctx, b)
		},
	}
}

// bmcLeases are leases as discovery knows them.
func bmcLeases(leases []lease.ListedLease) (all []discovery.Lease) {
	for _, l := range leases {
		all = append(all, discovery.Lease{Addr: l.Addr, MAC: l.MAC})
	}
	return all
}

// knownHosts are hosts that no second machine may stand for.
func knownHosts(hosts []metal3api.BareMetalHost) (all []discovery.Known) {
	for i := range hosts {
		h := &hosts[i]
		k := discovery.Known{Name: h.Name}
		if mac := metal3.BootMAC(h); mac != "" {
			k.MACs = []string{mac}
		}
		if h.Spec.BMC.Address != "" {
			k.BMC = metal3.BMCAddress(h.Spec.BMC.Address).Host()
		}
		if h.Status.HardwareDetails != nil {
			k.Serial = h.Status.HardwareDetails.SystemVendor.SerialNumber
		}
		all = append(all, k)
	}
	return all
}
