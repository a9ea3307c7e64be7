package page

import (
	"crypto/tls"
	"sync"
	"time"
)

// certificateAge is how long a certificate is used before it is read again: it is renewed on DATA.
const certificateAge = 10 * time.Minute

// cachedCertificate spares each handshake the files.
type cachedCertificate struct {
	issue func() (tls.Certificate, error)

	mu     sync.Mutex
	last   *tls.Certificate
	issued time.Time
}

func (c *cachedCertificate) get() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil && time.Since(c.issued) < certificateAge {
		return c.last, nil
	}

	pair, err := c.issue()
	if err != nil {
		return nil, err
	}

	c.last, c.issued = &pair, time.Now()
	return c.last, nil
}
