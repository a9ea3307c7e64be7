package page

import (
	"slices"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// offer is an action that a person may do now.
type offer struct{ Path, Title string }

// newOffers are the actions that a role may do now to what has a name.
func newOffers(p *picture, by Role, on subject, name string) (all []offer) {
	for _, a := range actions() {
		if a.on != on || !by.covers(a.needs) {
			continue
		}
		if _, ok := a.offered(p, name); ok {
			all = append(all, offer{a.path(name), a.title})
		}
	}
	return all
}

// typeAppliance has the appliance's name typed.
func typeAppliance(p *picture, _ string) string { return p.doc.Name }

func always(*picture, string) (about string, ok bool) { return "", true }

// mayBeInService is a node that is held because it runs, or because a disk says that it was installed.
func mayBeInService(p *picture, name string) (about string, ok bool) {
	return "", hasRule(p, name, "running", "installed-before")
}

func isInMaintenance(p *picture, name string) (about string, ok bool) {
	return "", hasRule(p, name, "maintenance")
}

// hasRule reports whether the diagnosis of a node is one of some rules.
func hasRule(p *picture, name string, rules ...string) bool {
	return slices.ContainsFunc(p.nodes, func(n status.Node) bool {
		return n.Name == name && slices.Contains(rules, n.Rule)
	})
}

// hasData is about the fingerprint of the data that keeps a node from being installed.
func hasData(p *picture, name string) (about string, ok bool) {
	return p.losable[name], p.losable[name] != "" && p.hosts[name] != nil
}

// hasNewCertificate is about the fingerprint of the certificate that a BMC shows in place of the pinned one.
func hasNewCertificate(p *picture, name string) (about string, ok bool) {
	return p.certificates[name], p.certificates[name] != ""
}

func isOff(p *picture, name string) (about string, ok bool) {
	h := switchable(p, name)
	return "", h != nil && !h.Spec.Online
}

func isOn(p *picture, name string) (about string, ok bool) {
	h := switchable(p, name)
	return "", h != nil && h.Spec.Online && h.Status.PoweredOn
}

// switchable is the host of a node that people may switch on and off: one in service. While a host is inspected or
// installed, Ironic does that.
func switchable(p *picture, name string) *metal3api.BareMetalHost {
	h := p.hosts[name]
	if h == nil || !metal3.InService(h) || p.noBMC[name] {
		return nil
	}
	return h
}

func canInspect(p *picture, name string) (about string, ok bool) {
	h := p.hosts[name]
	return "", h != nil && metal3.CanInspect(h)
}

func isPaused(p *picture, name string) (about string, ok bool) {
	h := p.hosts[name]
	return "", h != nil && metal3.IsPausedByOwner(h)
}

func isInstalled(p *picture, name string) (about string, ok bool) {
	c, ok := status.FindCluster(p.doc.Clusters, name)
	return "", ok && c.State == status.ClusterReady
}
