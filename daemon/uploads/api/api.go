// Package api is the appliance's REST API for uploads: that of ICN's BPA, with what it
// lacked. It says who may, speaks the upload protocol and describes itself as OpenAPI; what
// is uploaded is the blob store's to keep. docs/artifacts.md walks through it.
package api

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/daemon/uploads/api/access"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
	"firstlight.dev/firstlight/pxe/limit"
)

// Bounds on what clients can hold: memory stays flat whatever they send.
const (
	maxConnections = 512
	maxTransfers   = 64               // uploads and downloads at a time
	headTime       = 10 * time.Second // for TLS and the request's head
	idleTime       = 2 * time.Minute  // between requests
	silence        = time.Minute      // within a body
	maxHead        = 64 << 10         // octets
	stopTime       = 20 * time.Second // for requests under way to bring in what came, when the agent is stopped
)

// Config is what an agent is made of.
type Config struct {
	Listen        string // HOST:PORT
	TLS           Files
	Blobs         blobs.Config
	Authenticator access.Authenticator
	Authorizer    access.Authorizer
	Silence       time.Duration // how long a body may say nothing; 0 is a minute
	// Publish is given what is complete and what there is of each collection, soon after
	// either changed; nil: nobody wants to know.
	Publish func(complete map[artifact.Collection][]artifact.Metadata, usage map[artifact.Collection]artifact.Usage) error
	// Push brings complete container images to where nodes pull them, and notes in the store what became
	// of it; nil: nowhere. It may take long.
	Push  func(ctx context.Context, d *blobs.Store) error
	Log   *slog.Logger
	Audit *audit.Log // who changed what; nil: nobody wants to know
}

// Agent serves the API.
type Agent struct {
	Config
	blobs     atomic.Pointer[blobs.Store] // nil until the store was read
	transfers chan struct{}
	changed   [2]chan struct{} // what Publish and Push are told of
	metrics   *counters
	document  []byte
	handler   http.Handler
}

// New returns an agent. Nothing is asked or opened.
func New(c Config) (*Agent, error) {
	if c.Silence == 0 {
		c.Silence = silence
	}

	a := &Agent{
		Config:    c,
		transfers: make(chan struct{}, maxTransfers),
		changed:   [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)},
		metrics:   newCounters(prometheus.NewRegistry()),
	}
	a.Config.Blobs.Changed = a.notifyChanged
	document, err := openAPIDocument()
	if err != nil {
		return nil, err
	}

	a.document = document
	a.handler = a.routes()
	a.metrics.registry.MustRegister(usageCollector{a})
	return a, nil
}

// Run serves until ctx ends. Transfers under way are cut then: what came of them is brought
// into the store, and their clients go on with the next agent. ready, which may be nil, is told the address as soon as
// connections are taken; requests are answered 503 until the store was read.
func (a *Agent) Run(ctx context.Context, ready func(net.Addr)) error {
	config, err := a.TLS.Config()
	if err != nil {
		return err
	}

	listener, err := net.Listen("tcp", a.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", a.Listen, err)
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &limit.Server{
		Handler:     a.handler,
		Log:         a.Log,
		TLS:         config,
		Connections: maxConnections,
		Header:      headTime,
		Idle:        idleTime,
		Stall:       a.Silence,
		MaxHeader:   maxHead,
		Grace:       stopTime,
	}
	done := make(chan struct{})
	go func() { defer close(done); a.openBlobs(ctx) }()
	if ready != nil {
		ready(listener.Addr())
	}

	err = server.Serve(context.WithValue(ctx, runKey{}, ctx), listener)
	cancel()
	<-done
	return err
}

// Store is what the agent serves; nil until it was read.
func (a *Agent) Store() *blobs.Store { return a.blobs.Load() }

// openBlobs opens the store, however long that takes, and looks after it.
func (a *Agent) openBlobs(ctx context.Context) {
	for pause := time.Second; ctx.Err() == nil; pause = min(2*pause, 30*time.Second) {
		d, err := blobs.Open(ctx, a.Config.Blobs)
		if err == nil {
			a.blobs.Store(d)
			a.Log.Info("store read", "artifacts", count(d.Usage()))
			done := make(chan struct{})
			go func() { defer close(done); a.publishChanges(ctx, d) }()
			_ = d.Run(ctx) // ends with ctx, without error
			<-done
			return
		}

		a.Log.Error("store cannot be read", "error", err, "again", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}
