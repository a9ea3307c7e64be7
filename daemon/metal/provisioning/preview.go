package provisioning

import (
	"context"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// Preview is why nodes would not be changed, by their names, if a site with its defaults were this appliance's: what
// would be invalid, and what the next round would find. Nothing is changed. Machines that are discovered are left out.
func (p *Provisioner) Preview(ctx context.Context, s *site.Site) (map[string]metal3.Block, error) {
	a, err := p.newAppliance(s)
	if err != nil {
		return nil, err
	}

	hosts, _, err := p.knownHosts()
	if err != nil {
		return nil, err
	}

	r, err := p.reconciler()
	if err != nil {
		return nil, err
	}
	r.PreflightGate = nil // it asks about the site that holds
	return p.previewHosts(ctx, s, a, hosts, r)
}

// previewHosts is Preview with what it asks of others.
func (p *Provisioner) previewHosts(
	ctx context.Context, s *site.Site, a metal3.Appliance, hosts []metal3api.BareMetalHost, r metal3.Reconciler,
) (map[string]metal3.Block, error) {
	objects, unfit, err := p.siteObjects(s, a, discoverMACs(s, hosts))
	if err != nil {
		return nil, err
	}

	all, err := r.Observe(ctx, objects)
	if err != nil {
		return nil, err
	}
	return metal3.Blocks(unfit, all), nil
}
