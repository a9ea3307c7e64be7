package ca

import (
	"crypto/tls"
	"sync"
	"time"
)

// servedFor is how long a certificate is served before its files are read again: it is renewed on DATA, and a handshake
// costs no file.
const servedFor = 10 * time.Minute

// Server is a server in this process with a certificate of the authority, in the files that Names.Of says.
type Server struct {
	Authority func() (*Authority, error)
	Names     Names

	mu     sync.Mutex
	last   *tls.Certificate
	issued time.Time
}

// Issue is its certificate as of now.
func (s *Server) Issue() (tls.Certificate, error) {
	authority, err := s.Authority()
	if err != nil {
		return tls.Certificate{}, err
	}

	pair, _, err := authority.Issue(s.Names.Of, s.Names)
	if err != nil {
		return tls.Certificate{}, err
	}

	return tls.X509KeyPair(pair.Cert, pair.Key)
}

// Certificate is its certificate, as tls.Config asks for it at each handshake.
func (s *Server) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && time.Since(s.issued) < servedFor {
		return s.last, nil
	}

	pair, err := s.Issue()
	if err != nil {
		return nil, err
	}

	s.last, s.issued = &pair, time.Now()
	return s.last, nil
}
