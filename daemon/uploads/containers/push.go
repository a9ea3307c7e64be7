package containers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
)

// Writer is who may push to the registry, as PEM files.
type Writer struct {
	Cert, Key string
	CA        string // authority of the registry's own certificate
}

// PushComplete has the registry hold the images of a store's complete archives, and notes in the store what became
// of each. The writer's files are read every time: certificates are renewed meanwhile.
func (p *Pusher) PushComplete(ctx context.Context, w Writer, s *blobs.Store) error {
	transport, err := w.transport()
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()

	p.Transport, p.Report = transport, s.SetServed
	return p.Sync(ctx, s.Complete(artifact.Container))
}

func (w Writer) transport() (*http.Transport, error) {
	pair, err := tls.LoadX509KeyPair(w.Cert, w.Key)
	if err != nil {
		return nil, fmt.Errorf("read certificate for the registry: %w", err)
	}

	authority, err := os.ReadFile(w.CA)
	if err != nil {
		return nil, fmt.Errorf("read authority of the registry: %w", err)
	}

	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("read authority of the registry: %s holds no certificate", w.CA)
	}

	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}}, nil
}

// Decline notes in a store that is not on the appliance why nodes cannot pull its container images.
func Decline(ctx context.Context, s *blobs.Store) error {
	const why = "the store is not on the appliance, which offers to nodes only what it has itself"
	for _, r := range s.Complete(artifact.Container) {
		if r.SHA256 == "" || r.NotServed != "" {
			continue
		}
		if err := s.SetServed(ctx, keyOf(r), r.SHA256, nil, why); err != nil {
			return err
		}
	}
	return nil
}
