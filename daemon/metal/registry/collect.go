package registry

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"sync"
	"time"

	"github.com/distribution/distribution/v3/registry/storage"
	"github.com/distribution/distribution/v3/registry/storage/driver"
)

// Quiet is how long nobody has pushed before what no name leads to is removed. A push is a row of requests,
// and between two of them its layers have no name yet.
const Quiet = 5 * time.Minute

// pushes knows whether what is pushed may be sorted through.
type pushes struct {
	gate sync.RWMutex // held while a push's request is answered; taken whole while the store is sorted through

	mu   sync.Mutex
	last time.Time // end of the last request of a push or a removal
	due  bool      // something may be there that no name leads to
}

// enter lets a request of a push or a removal go on, and keeps the collector away until done is called.
func (p *pushes) enter(method string) (done func()) {
	p.gate.RLock()
	return func() {
		p.mu.Lock()
		p.last = time.Now()
		p.due = p.due || method == http.MethodDelete || method == http.MethodPut
		p.mu.Unlock()
		p.gate.RUnlock()
	}
}

// canCollect tells whether there may be something to remove and nobody has pushed since quiet before now.
func (p *pushes) canCollect(now time.Time, quiet time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.due && now.Sub(p.last) >= quiet
}

// runCollector removes what no name leads to from time to time, until ctx ends.
func (s *Server) runCollector(ctx context.Context) {
	for {
		if s.pushes.canCollect(time.Now(), Quiet) {
			if err := s.Collect(ctx); err != nil && ctx.Err() == nil {
				s.config.Log.Warn(
					"pushed images that nobody can name stay on the disk until the next push or removal", "error", err,
				)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Minute):
		}
	}
}

// Collect removes what was pushed and no tag leads to any more: an image whose name was taken away or
// given to another, and layers of pushes that were cut off. Pushes wait meanwhile; pulls go on. It may
// be cut off and called again.
func (s *Server) Collect(ctx context.Context) error {
	s.pushes.gate.Lock()
	defer s.pushes.gate.Unlock()
	s.pushes.mu.Lock()
	s.pushes.due = false
	s.pushes.mu.Unlock()
	if _, err := s.storage.dataDriver().Stat(ctx, path.Dir(repositoriesRoot)); err != nil {
		return nil // nothing was ever pushed
	}

	all := collectDriver{s.storage}
	r, err := storage.NewRegistry(ctx, all)
	if err != nil {
		return fmt.Errorf("read pushed images: %w", err)
	}
	if err := storage.MarkAndSweep(ctx, all, r, storage.GCOpts{RemoveUntagged: true, Quiet: true}); err != nil {
		return fmt.Errorf("remove images without a name: %w", err)
	}

	return nil
}

// collectDriver is the storage as the library's collector sees it: the stick's part cannot be deleted, and
// need not be.
type collectDriver struct{ *storageDriver }

// Delete implements driver.StorageDriver.
func (s collectDriver) Delete(ctx context.Context, name string) error {
	if s.layout.entries[name] != nil {
		return nil
	}
	return s.storageDriver.Delete(ctx, name)
}

var _ driver.StorageDriver = collectDriver{}
