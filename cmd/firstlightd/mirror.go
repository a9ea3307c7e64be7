package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/metal/packages"
	"firstlight.dev/firstlight/daemon/metal/registry"
)

// newMirrorCommand is what installers of clusters need of an appliance, without the rest of it.
func newMirrorCommand() *cobra.Command {
	var addrs []string
	var images, debs, state string
	cmd := &cobra.Command{
		Use:   "supplies --address ADDR/LENGTH … --state DIR",
		Short: "Serve what nodes are given alone: container images (port 5000), packages (port 6180)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(addrs) == 0 || state == "" {
				return commandline.NewUsageError(fmt.Errorf("--address ADDR/LENGTH and --state DIR are required"))
			}
			var at []netip.Prefix
			for _, text := range addrs {
				p, err := netip.ParsePrefix(text)
				if err != nil {
					return commandline.NewUsageError(fmt.Errorf("--address: %w", err))
				}
				at = append(at, p)
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			return runMirror(cmd.Context(), at, images, debs, state, log)
		},
	}
	cmd.Flags().StringArrayVar(&addrs, "address", nil, "an address to serve at, with its network's length (172.22.0.1/24); again for another, the first is for nodes on neither network")
	cmd.Flags().StringVar(&images, "images", "/usr/share/firstlight/images", "OCI layout of the container images")
	cmd.Flags().StringVar(&debs, "packages", "/usr/share/firstlight/packages", "the packages, with their index")
	cmd.Flags().StringVar(&state, "state", "", "directory for keys, for the signed index and for images that are pushed")
	return cmd
}

func runMirror(ctx context.Context, at []netip.Prefix, images, debs, state string, log *slog.Logger) error {
	authority, err := ca.Open(filepath.Join(state, "ca"), time.Now)
	if err != nil {
		return err
	}
	key, err := packages.OpenKey(filepath.Join(state, "secret", "packages.key"))
	if err != nil {
		return err
	}
	var addrs []netip.Addr
	for _, p := range at {
		addrs = append(addrs, p.Addr())
	}
	dir := filepath.Join(state, "debian")
	repository := packages.Repository{Dir: dir, Pools: []packages.Pool{{Dir: debs, Path: "pool", Index: filepath.Join(debs, "Packages")}}, Key: key, Now: time.Now}
	if _, err := repository.Write(ctx); err != nil {
		return err
	}
	s, err := registry.New(registry.Config{
		Addrs: at, Port: 5000, Layout: images, Store: filepath.Join(state, "registry"), Writers: authority.Pool(), Log: log,
		Public: map[string][]byte{"/ca.crt": authority.PEM(), "/packages.asc": key.Public()},
		Certificate: func() (tls.Certificate, error) {
			pair, _, err := authority.Issue("registry", ca.Names{CommonName: "registry", Addrs: addrs})
			if err != nil {
				return tls.Certificate{}, err
			}
			return tls.X509KeyPair(pair.Cert, pair.Key)
		},
	})
	if err != nil {
		return err
	}
	files := http.NewServeMux()
	files.Handle("GET /debian/pool/", http.StripPrefix("/debian/pool/", http.FileServer(http.Dir(debs))))
	files.Handle("GET /debian/", http.StripPrefix("/debian/", http.FileServer(http.Dir(dir))))
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.Run(ctx) })
	for _, addr := range addrs {
		group.Go(func() error { return serveAdmin(ctx, netip.AddrPortFrom(addr, 6180).String(), files) })
	}
	return group.Wait()
}
