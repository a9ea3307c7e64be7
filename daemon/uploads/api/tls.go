package api

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"
)

// Files are the agent's certificate and key, and the authority of its clients, PEM. They may
// be replaced at any time; each new connection sees what is there.
type Files struct {
	Cert, Key string
	ClientCA  string // "": no client certificate is asked for
}

// lookEvery is how often the files are looked at, at most.
const lookEvery = time.Second

// Config reads the files, so that a mistake is told at the start.
func (f Files) Config() (*tls.Config, error) {
	first, err := f.read()
	if err != nil {
		return nil, err
	}

	var mu sync.Mutex
	last, looked := first, time.Now()
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(looked) >= lookEvery {
			looked = time.Now()
			// Files that are being replaced do not fit together for a moment.
			if c, err := f.read(); err == nil {
				last = c
			}
		}

		return last, nil
	}}, nil
}

func (f Files) read() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}

	c := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{pair},
		NextProtos:   []string{"http/1.1"},
	}
	if f.ClientCA == "" {
		return c, nil
	}

	text, err := os.ReadFile(f.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("read authority of clients: %w", err)
	}

	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("authority of clients %s holds no certificate", f.ClientCA)
	}

	c.ClientAuth = tls.VerifyClientCertIfGiven
	return c, nil
}
