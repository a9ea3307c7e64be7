package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/pxe/limit"
	"firstlight.dev/firstlight/pxe/server"
)

func newPXECommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "pxe --config FILE",
		Short: "Run the boot services (DHCP, TFTP, HTTP) alone, with a file that says what machines boot",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return commandline.NewUsageError(fmt.Errorf("--config is required; docs/pxe.md shows a file"))
			}
			return runPXE(cmd.Context(), file)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "what to serve and what each machine boots (YAML)")
	return cmd
}

// runPXE serves until ctx ends.
func runPXE(ctx context.Context, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}

	parsed, err := parsePXE(file, data)
	if err != nil {
		return err
	}

	registry := prometheus.NewRegistry()
	parsed.conf.Registry = registry
	parsed.conf.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	services, err := server.New(parsed.conf)
	if err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return services.Run(ctx) })
	if parsed.admin != "" {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
		mux.Handle("GET /machines", services.Traces())
		mux.Handle("GET /machines/", services.Traces())
		group.Go(func() error { return serveAdmin(ctx, parsed.admin, mux, parsed.conf.Log) })
	}

	return group.Wait()
}

// serveAdmin shows metrics and records until ctx ends.
func serveAdmin(ctx context.Context, addr string, handler http.Handler, log *slog.Logger) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("listen for metrics: %w", err)
	}

	admin := &limit.Server{Handler: handler, Log: log}
	if err := admin.Serve(ctx, listener); ctx.Err() == nil {
		return fmt.Errorf("serve metrics: %w", err)
	}

	return nil
}
