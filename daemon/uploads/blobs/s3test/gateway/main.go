// Command gateway is an S3 server for tests and measurements: that of github.com/versity/versitygw over a folder. It
// syncs nothing, and copies the parts of an upload when that is completed.
//
//	STORE_ACCESS_KEY=… STORE_SECRET_KEY=… gateway -listen 127.0.0.1:9000 -dir /var/lib/store
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/s3api"
	"github.com/versity/versitygw/s3api/middlewares"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9000", "address to serve S3 on, by plain HTTP")
	dir := flag.String("dir", "", "folder whose folders are the buckets; its file system must keep user attributes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, listen, dir string) error {
	root := auth.Account{
		Access: os.Getenv("STORE_ACCESS_KEY"),
		Secret: os.Getenv("STORE_SECRET_KEY"),
		Role:   auth.RoleAdmin,
	}
	if root.Access == "" || root.Secret == "" {
		return errors.New("STORE_ACCESS_KEY and STORE_SECRET_KEY must say who may do everything; there is nobody else")
	}

	store, err := posix.New(
		dir, meta.XattrMeta{},
		posix.PosixOpts{DataIntegrityEtag: true, IOBufferSize: 256 << 10, ForceNoObjLockFile: true},
	)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	defer store.Shutdown()

	server, err := s3api.New(store, middlewares.RootUserConfig{Access: root.Access, Secret: root.Secret}, "us-east-1",
		auth.NewIAMServiceSingle(root), nil, nil, nil, nil,
		s3api.WithQuiet(), s3api.WithKeepAlive(), s3api.WithDisableACL(), s3api.WithHealth("/health"),
		s3api.WithConcurrencyLimiter(1024, 512), s3api.WithMpMaxParts(10000))
	if err != nil {
		return fmt.Errorf("make server: %w", err)
	}

	failed := make(chan error, 1)
	go func() { failed <- server.ServeMultiPort([]string{listen}) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", listen, err)
	case <-ctx.Done():
		return server.ShutDown()
	}
}
