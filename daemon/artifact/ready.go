package artifact

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// Readiness asks the store so often, however often it is asked itself, and waits so long for its answer.
const (
	askEvery = 2 * time.Second
	askTime  = 5 * time.Second
)

// pulse is what the store said last.
type pulse struct {
	mu   sync.Mutex
	at   time.Time
	said error
}

func (p *pulse) ask(ctx context.Context, do func(context.Context) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.at) > askEvery {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
		defer cancel()
		p.said = do(ctx)
		p.at = time.Now()
	}
	return p.said
}

func (a *Agent) ready(w http.ResponseWriter, r *http.Request, c call) error {
	d := a.depot.Load()
	if d == nil {
		return refuse(http.StatusServiceUnavailable, "the store is still being read; try again")
	}
	if err := a.pulse.ask(r.Context(), d.Answers); err != nil {
		return refuse(http.StatusServiceUnavailable, "the store was read and does not answer any more; uploads wait a minute for it")
	}
	return a.health(w, r, c)
}
