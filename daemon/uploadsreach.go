package daemon

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/uploads/api/access"
)

// reachAge is how long one certificate of the page's is used; it is in memory alone.
const reachAge = 24 * time.Hour

// uploadsReach is how the page reaches the upload API on this appliance, by a certificate that says that it is the page.
type uploadsReach struct {
	authority func() (*ca.Authority, error)

	mu        sync.Mutex
	transport *http.Transport
	made      time.Time
	trusted   []byte // what it was made with
}

// get returns where the API is, and by what.
func (u *uploadsReach) get() (*url.URL, http.RoundTripper, error) {
	base := &url.URL{Scheme: "https", Host: fmt.Sprintf("127.0.0.1:%d", artifact.Port)}
	u.mu.Lock()
	defer u.mu.Unlock()
	authority, err := u.authority()
	if err != nil {
		return nil, nil, err
	}
	trusted := authority.PEM()
	if u.transport != nil && time.Since(u.made) < reachAge && bytes.Equal(trusted, u.trusted) {
		return base, u.transport, nil
	}

	pair, err := authority.Sign(ca.Names{Of: access.PageClient, Client: true})
	if err != nil {
		return nil, nil, err
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, nil, fmt.Errorf("read the page's certificate: %w", err)
	}

	u.trusted, u.made = trusted, time.Now()
	u.transport = &http.Transport{
		TLSClientConfig: &tls.Config{
			MinVersion:   tls.VersionTLS12,
			RootCAs:      authority.Pool(),
			Certificates: []tls.Certificate{certificate},
		},
		MaxIdleConns:    maxIdleUploads,
		IdleConnTimeout: time.Minute,

		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: uploadTimeout,
	}
	return base, u.transport, nil
}

// uploadTimeout is how long the API may take to answer a piece that it has: the last one has it compare all of a large
// artifact with its checksum.
const uploadTimeout = 10 * time.Minute

// maxIdleUploads is how many connections wait for the next piece.
const maxIdleUploads = 8
