package main

import (
	"context"
	"log/slog"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/daemon"
	"firstlight.dev/firstlight/daemon/kube"
)

func newRunCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Bring the appliance up and serve (what happens without a subcommand)",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return runDaemon(cmd.Context()) },
	}
}

func runDaemon(ctx context.Context) error {
	if kube.OneThread(runtime.NumCPU()) {
		runtime.GOMAXPROCS(1)
	}
	return daemon.New(slog.New(slog.NewTextHandler(os.Stderr, nil))).Run(ctx)
}
