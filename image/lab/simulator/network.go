package simulator

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"firstlight.dev/firstlight/image/lab/netns"
)

// network is where the hosts' sockets are made, and the services that listen there.
type network struct {
	mu        sync.Mutex
	namespace string
	open      map[*service]bool
}

// inNamespace makes what do makes in the namespace at path, "" for this one's.
func inNamespace(path string, do func() error) error {
	if path == "" {
		return do()
	}
	return netns.Do(path, do)
}

func (n *network) path() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.namespace
}

// dial connects from an address of a host's own.
func (n *network) dial(from netip.Addr) func(context.Context, string, string) (net.Conn, error) {
	dialer := &net.Dialer{
		LocalAddr:     net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)),
		Timeout:       30 * time.Second,
		FallbackDelay: -1,
	}
	return func(ctx context.Context, family, addr string) (conn net.Conn, err error) {
		err = inNamespace(n.path(), func() (err error) {
			conn, err = dialer.DialContext(ctx, family, addr)
			return err
		})
		return conn, err
	}
}

// service is an HTTP server at a fixed address.
type service struct {
	addr    netip.AddrPort
	handler http.Handler
	cert    *tls.Certificate // nil: plain HTTP

	server   *http.Server
	listener net.Listener
}

// close ends the service, also when it has not begun to serve: then the server does not know its listener yet.
func (s *service) close() error {
	err := s.server.Close()
	if closing := s.listener.Close(); closing != nil && !errors.Is(closing, net.ErrClosed) {
		err = errors.Join(err, closing)
	}

	return err
}

// open begins to serve; the service is closed with the network if not before.
func (s *service) open(n *network) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := s.listen(n.namespace); err != nil {
		return err
	}

	if n.open == nil {
		n.open = map[*service]bool{}
	}

	n.open[s] = true
	return nil
}

func (s *service) listen(namespace string) error {
	var listener net.Listener
	err := inNamespace(namespace, func() (err error) {
		listener, err = net.Listen("tcp", s.addr.String())
		return err
	})
	if err != nil {
		return fmt.Errorf("serve host at %s: %w", s.addr, err)
	}

	s.listener = listener
	s.server = &http.Server{Handler: s.handler, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute}
	if s.cert == nil {
		go s.server.Serve(listener)
		return nil
	}

	s.server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*s.cert}, MinVersion: tls.VersionTLS12}
	go s.server.ServeTLS(listener, "", "")
	return nil
}

// closeService ends a service and its connections.
func (n *network) closeService(s *service) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open[s] {
		delete(n.open, s)
		_ = s.close()
	}
}

// replaceCertificate opens a service again with another certificate.
func (n *network) replaceCertificate(s *service, cert *tls.Certificate) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = s.close()
	s.cert = cert
	return s.listen(n.namespace)
}

// move closes every service and opens it in another namespace.
func (n *network) move(namespace string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.namespace = namespace
	var errs []error
	for s := range n.open {
		_ = s.close()
		errs = append(errs, s.listen(namespace))
	}

	return errors.Join(errs...)
}

func (n *network) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for s := range n.open {
		errs = append(errs, s.close())
	}

	n.open = nil
	return errors.Join(errs...)
}

// selfSigned mints a certificate for an address, as a BMC and the agent do for themselves.
func selfSigned(addr netip.Addr) (tls.Certificate, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("mint certificate: %w", err)
	}

	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("mint certificate: %w", err)
	}

	form := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: addr.String()},
		IPAddresses:           []net.IP{addr.AsSlice()},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(90 * 24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("mint certificate: %w", err)
	}

	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(text), nil
}
