package main

import (
	"context"
	"log/slog"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/daemon"
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
	if runtime.NumCPU() <= 2 {
		runtime.GOMAXPROCS(1) // as every part of Kubernetes here: kube.World.OneThread
	}
	return daemon.New(slog.New(slog.NewTextHandler(os.Stderr, nil))).Run(ctx)
}
