package provisioning

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/metal/bmctrust"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// agentPort is where agents listen for Ironic.
const agentPort = "9999"

// errHostsUnknown says that it is too early to tell BMCs from other machines.
var errHostsUnknown = errors.New("the appliance is still starting and does not know its hosts yet")

// newForwarder makes the way of Ironic to BMCs.
func (p *Provisioner) newForwarder() *bmctrust.Forwarder {
	return &bmctrust.Forwarder{Pins: p.Pins, Log: p.Log, BMC: p.bmcAt, Certificate: p.forwarderCertificate}
}

// bmcAt is the BMC at an endpoint, of a node of the site or of any host of the API; nil: it is no BMC. Of several that
// the same BMC has, one whose certificate is checked counts.
func (p *Provisioner) bmcAt(endpoint string) (*site.BMC, error) {
	s := p.AllNodes()
	var found *site.BMC
	take := func(b *site.BMC) {
		if b == nil || !b.Address.HasTLS() || b.Address.Endpoint() != endpoint {
			return
		}
		if found == nil || found.VerifyCertificate == site.CheckNone {
			found = b
		}
	}
	for _, n := range s.Nodes {
		take(n.BMC)
	}

	if found != nil && found.VerifyCertificate != site.CheckNone {
		return found, nil
	}

	// Also hosts that this appliance does not install.
	hostBMC := func(h *metal3api.BareMetalHost) *site.BMC {
		return metal3.AppliedHost{Host: h, Default: s.BMC.VerifyCertificate}.Node().BMC
	}
	h := p.Hosts.FindHost(func(h *metal3api.BareMetalHost) bool {
		if h.Spec.BMC.Address == "" || metal3.BMCAddress(h.Spec.BMC.Address).Endpoint() != endpoint || hasNode(s, h.Name) {
			return false
		}
		return found == nil || hostBMC(h).VerifyCertificate != site.CheckNone
	})
	if h != nil {
		take(hostBMC(h))
	}

	if found == nil && !p.Hosts.IsCurrent() && !isAgent(endpoint, s) {
		return nil, errHostsUnknown
	}

	return found, nil
}

// isAgent reports whether an endpoint is where an agent on the provisioning network listens. Ironic speaks to it also
// while the daemon starts.
func isAgent(endpoint string, s *site.Site) bool {
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil || port != agentPort {
		return false
	}

	addr, err := netip.ParseAddr(host)
	return err == nil && s.Networks.Provisioning.CIDR.Contains(addr)
}

// forwarderCertificate is shown to Ironic in place of a BMC's. It is for this connection, and on no disk.
func (p *Provisioner) forwarderCertificate(host string) (tls.Certificate, error) {
	authority, err := p.Vault.BMCAuthority()
	if err != nil {
		return tls.Certificate{}, err
	}

	names := ca.Names{Of: "BMC forwarder"}
	if addr, err := netip.ParseAddr(host); err == nil {
		names.Addrs = []netip.Addr{addr}
	} else {
		names.DNS = []string{host}
	}

	pair, err := authority.Sign(names)
	if err != nil {
		return tls.Certificate{}, err
	}

	return tls.X509KeyPair(pair.Cert, pair.Key)
}
