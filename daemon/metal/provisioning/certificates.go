package provisioning

import (
	"fmt"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/bmctrust"
)

// TrustBMC accepts the certificate that a node's BMC shows in place of the pinned one, if it has this SHA-256. It returns
// that of the one before and of the one that is trusted now.
func (p *Provisioner) TrustBMC(node, fingerprint string) (before, now string, err error) {
	endpoint, err := p.pinnedBMC(node)
	if err != nil {
		return "", "", err
	}
	was, err := p.Pins.Trust(endpoint, fingerprint)
	return was.Pinned, was.Other, err
}

// BMCCertificate is what TrustBMC would accept.
func (p *Provisioner) BMCCertificate(node string) (status.BMCCertificate, error) {
	endpoint, err := p.pinnedBMC(node)
	if err != nil {
		return status.BMCCertificate{}, err
	}
	c, err := p.Pins.Offer(endpoint)
	return status.BMCCertificate{
		Endpoint: endpoint, Pinned: c.Pinned, SHA256: c.Other, Certificate: c.Certificate, Seen: c.At,
	}, err
}

// pinnedBMC is the endpoint of a node's BMC, whose certificate is pinned.
func (p *Provisioner) pinnedBMC(node string) (endpoint string, err error) {
	for _, n := range p.AllNodes().Nodes {
		switch {
		case string(n.Name) != node:
		case n.BMC == nil:
			return "", fmt.Errorf("node %s has no BMC", node)
		case !n.BMC.Address.HasTLS():
			return "", fmt.Errorf("the BMC of node %s has no certificate: it is spoken to by %s", node, n.BMC.Address.Scheme())
		case n.BMC.VerifyCertificate != site.CheckPin:
			return "", fmt.Errorf("the certificate of node %s is not pinned: its verifyCertificate is %s", node, n.BMC.VerifyCertificate)
		default:
			return n.BMC.Address.Endpoint(), nil
		}
	}
	return "", fmt.Errorf("no node is called %s; firstlightd status lists them", node)
}

// ChangedCertificate is the SHA-256 of what a node's BMC shows in place of the certificate that is pinned, "" if that is
// not what blocks the node.
func (p *Provisioner) ChangedCertificate(node string) string {
	for _, n := range p.AllNodes().Nodes {
		if string(n.Name) != node || n.BMC == nil {
			continue
		}
		change, _ := p.Pins.Change(*n.BMC)
		return change.Other
	}
	return ""
}

// ReportCertificate has the nodes of a BMC looked at again, and puts an event on their hosts if its certificate is
// refused.
func (p *Provisioner) ReportCertificate(endpoint string) {
	p.Recheck()
	for _, n := range p.AllNodes().Nodes {
		if n.BMC == nil || n.BMC.Address.Endpoint() != endpoint {
			continue
		}
		if c, is := p.Pins.Change(*n.BMC); is {
			go p.addEvent(certificateEvent(string(n.Name), c))
		}
	}
}

// certificateEvent is once for each certificate.
func certificateEvent(host string, c bmctrust.Change) hostEvent {
	return hostEvent{
		Host:    host,
		Name:    "bmc-" + c.Other[:min(len(c.Other), 16)],
		Reason:  "BMCCertificateChanged",
		Message: c.Text() + "; " + c.Fix(host),
		At:      c.At,
	}
}
