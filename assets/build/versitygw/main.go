// Command versitygw is the S3 server under the artifacts: the gateway of
// github.com/versity/versitygw over a folder, changed in this. What it has answered
// for is on the medium: the module itself never syncs, and a stick may lose its power at
// any time. An upload whose completion was cut off can be completed again. An upload of any number
// of parts can be completed at all (attributes). And the parts of one need not be copied (assembly).
//
//	STORE_ACCESS_KEY=… STORE_SECRET_KEY=… versitygw -listen 127.0.0.1:9000 -dir /var/lib/store
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
	listen := flag.String("listen", "127.0.0.1:9000", "address to serve S3 on, by plain HTTP; a path is a unix socket")
	dir := flag.String("dir", "", "folder whose folders are the buckets; its file system must keep user attributes")
	region := flag.String("region", "us-east-1", "region that requests are signed for")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *dir, *region); err != nil {
		fmt.Fprintln(os.Stderr, "versitygw:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, listen, dir, region string) error {
	root := auth.Account{Access: os.Getenv("STORE_ACCESS_KEY"), Secret: os.Getenv("STORE_SECRET_KEY"), Role: auth.RoleAdmin}
	if root.Access == "" || root.Secret == "" {
		return errors.New("STORE_ACCESS_KEY and STORE_SECRET_KEY must say who may do everything; there is nobody else")
	}
	if err := (meta.XattrMeta{}).Test(dir); err != nil {
		return fmt.Errorf("try attributes of %s: %w", dir, err)
	}
	if err := restoreUploads(dir); err != nil {
		return err
	}
	// The checksum of a part is its ETag: without MD5 a part costs half the time.
	store, err := posix.New(dir, attributeStore{}, posix.PosixOpts{DataIntegrityEtag: true, IOBufferSize: 256 << 10, ForceNoObjLockFile: true})
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	defer store.Shutdown()
	server, err := s3api.New(durableBackend{store}, middlewares.RootUserConfig{Access: root.Access, Secret: root.Secret}, region,
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
