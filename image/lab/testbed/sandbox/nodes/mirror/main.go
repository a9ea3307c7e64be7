// Command mirror serves what installers of clusters need of an appliance, without the rest of it: container images
// (port 5000) and packages (port 6180), from where the stick has them.
//
//	mirror DIR ADDR/LENGTH …    state below DIR; the first address is for nodes that are on none of the networks
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/metal/packages"
	"firstlight.dev/firstlight/daemon/metal/packages/kubernetes"
	"firstlight.dev/firstlight/daemon/metal/registry"
)

// Where the stick has what is served.
const (
	images = "/usr/share/firstlight/images"
	debs   = "/usr/share/firstlight/packages"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mirror:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return errors.New("usage: mirror DIR ADDR/LENGTH …")
	}

	var prefixes []netip.Prefix
	var addrs []netip.Addr
	for _, text := range args[1:] {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return err
		}
		prefixes, addrs = append(prefixes, p), append(addrs, p.Addr())
	}

	authority, err := ca.Open(filepath.Join(args[0], "ca"), time.Now)
	if err != nil {
		return err
	}

	key, err := packages.OpenKey(filepath.Join(args[0], "secret", "packages.key"))
	if err != nil {
		return err
	}

	containers, err := registry.New(registry.Config{
		Addrs:   prefixes,
		Port:    5000,
		Layout:  images,
		Store:   filepath.Join(args[0], "registry"),
		Writers: authority.Pool,
		Log:     slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Public: func() map[string][]byte {
			return map[string][]byte{"/ca.crt": authority.PEM(), "/packages.asc": key.Public()}
		},
		Certificate: (&ca.Server{
			Authority: func() (*ca.Authority, error) { return authority, nil },
			Names:     ca.Names{Of: "registry", Addrs: addrs},
		}).Issue,
	})
	if err != nil {
		return err
	}

	files, err := debian(ctx, filepath.Join(args[0], "debian"), key)
	if err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return containers.Run(ctx) })
	for _, addr := range addrs {
		server := &http.Server{
			Addr:              netip.AddrPortFrom(addr, 6180).String(),
			Handler:           files,
			ReadHeaderTimeout: time.Minute,
		}
		group.Go(server.ListenAndServe)
		context.AfterFunc(ctx, func() { _ = server.Close() })
	}

	return group.Wait()
}

// debian is the repository of packages, with an index in dir that is signed with the key.
func debian(ctx context.Context, dir string, key *packages.Key) (http.Handler, error) {
	made := &kubernetes.Pool{Root: os.DirFS(stick.LowerDir), Dir: dir + "-kubernetes"}
	if err := made.Make(); err != nil {
		return nil, err
	}

	pools := []packages.Pool{
		{Dir: debs, Path: "pool", Index: filepath.Join(debs, "Packages")},
		{Dir: made.Dir, Path: "kubernetes", Index: filepath.Join(made.Dir, kubernetes.IndexName)},
	}
	repository := packages.Repository{Dir: dir, Pools: pools, Key: key, Now: time.Now}
	if _, err := repository.Write(ctx); err != nil {
		return nil, err
	}

	files := http.NewServeMux()
	files.Handle("GET /debian/pool/", http.StripPrefix("/debian/pool/", http.FileServer(http.Dir(debs))))
	files.HandleFunc("GET /debian/kubernetes/{name}", func(w http.ResponseWriter, r *http.Request) {
		file, err := made.Open(r.PathValue("name"))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		defer file.Close()

		http.ServeContent(w, r, "", time.Time{}, file)
	})
	files.Handle("GET /debian/", http.StripPrefix("/debian/", http.FileServer(http.Dir(dir))))
	return files, nil
}
