package main

import (
	"context"
	"net"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/api"
	"firstlight.dev/firstlight/daemon/uploads/s3api"
)

// serve serves until ctx ends: the API, and S3 if it is asked for.
func (f artifactFlags) serve(ctx context.Context, c api.Config) error {
	parts := &s3api.Parts{Dir: filepath.Join(f.publish, artifact.PartsDir), Expiry: f.expiry, Log: c.Log}
	if f.s3Listen != "" {
		if err := parts.Open(); err != nil {
			return err
		}
		c.Blobs.Staged = parts.Octets
	} else if f.publish != "" {
		if err := parts.Discard(); err != nil {
			return err
		}
	}

	a, err := api.New(c)
	if err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return a.Run(ctx, func(addr net.Addr) { c.Log.Info("artifacts served", "address", addr.String()) })
	})
	if f.s3Listen != "" {
		group.Go(func() error { return f.serveS3(ctx, c, a, parts) })
	}

	return group.Wait()
}

// serveS3 serves what the agent has by S3.
func (f artifactFlags) serveS3(ctx context.Context, c api.Config, a *api.Agent, parts *s3api.Parts) error {
	cluster, err := restConfig(f.kubeconfig)
	if err != nil {
		return err
	}

	namespace, name, _ := strings.Cut(f.s3Keys, "/")
	keys, err := s3api.NewSecretKeys(cluster, namespace, name)
	if err != nil {
		return err
	}

	tls := c.TLS
	tls.ClientCA = "" // requests are signed
	config, err := tls.Config()
	if err != nil {
		return err
	}

	go parts.Run(ctx)
	server := s3api.New(s3api.Config{
		Listen:     f.s3Listen,
		TLS:        config,
		Store:      a.Store,
		Keys:       keys,
		Authorizer: c.Authorizer,
		Parts:      parts,
		Log:        c.Log,
		Audit:      c.Audit,
	})
	return server.Run(ctx, func(addr net.Addr) { c.Log.Info("artifacts served by S3", "address", addr.String()) })
}
