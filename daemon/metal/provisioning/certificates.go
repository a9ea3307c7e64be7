package provisioning

import (
	"context"
	"fmt"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/bmctrust"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// TrustBMC accepts the certificate that a node's BMC shows in place of the pinned one. It returns the SHA-256 of the
// one before and of the one that is trusted now.
func (p *Provisioner) TrustBMC(node, fingerprint string) (before, now string, err error) {
	for _, n := range p.AllNodes().Nodes {
		switch {
		case string(n.Name) != node:
		case n.BMC == nil:
			return "", "", fmt.Errorf("node %s has no BMC", node)
		case !n.BMC.Address.HasTLS():
			return "", "", fmt.Errorf("the BMC of node %s has no certificate: it is spoken to by %s", node, n.BMC.Address.Scheme())
		case n.BMC.VerifyCertificate != site.CheckPin:
			return "", "", fmt.Errorf("the certificate of node %s is not pinned: its verifyCertificate is %s", node, n.BMC.VerifyCertificate)
		default:
			was, err := p.Pins.Trust(n.BMC.Address.Endpoint(), fingerprint)
			return was.Pinned, was.Other, err
		}
	}
	return "", "", fmt.Errorf("no node is called %s; firstlightd status lists them", node)
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
			go p.addCertificateEvent(string(n.Name), c)
		}
	}
}

// addCertificateEvent puts an event on a host, once for each certificate. Before there is a host, and while the API is
// away, there is none: the status says the same.
func (p *Provisioner) addCertificateEvent(name string, c bmctrust.Change) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	h := p.Hosts.FindHost(func(h *metal3api.BareMetalHost) bool { return h.Name == name })
	if h == nil {
		return
	}

	api, err := p.Client()
	if err == nil {
		err = api.Create(ctx, certificateEvent(h, c))
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		p.Log.Error("event of a refused certificate not written", "node", name, "error", err)
	}
}

// certificateEvent is pure. Its name is that of the host and the certificate.
func certificateEvent(h *metal3api.BareMetalHost, c bmctrust.Change) *corev1.Event {
	at := metav1.NewTime(c.At)
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: metal3.Namespace, Name: h.Name + ".bmc-" + c.Other[:min(len(c.Other), 16)]},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "metal3.io/v1alpha1",
			Kind:       "BareMetalHost",
			Namespace:  h.Namespace,
			Name:       h.Name,
			UID:        h.UID,
		},
		Type:           corev1.EventTypeWarning,
		Reason:         "BMCCertificateChanged",
		Message:        c.Text() + "; " + c.Fix(h.Name),
		Source:         corev1.EventSource{Component: "firstlightd"},
		FirstTimestamp: at,
		LastTimestamp:  at,
		Count:          1,
	}
}
