package main

import (
	"context"
	"log/slog"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/manifest"
	"firstlight.dev/firstlight/daemon"
	"firstlight.dev/firstlight/daemon/appliance/kube"
)

func newRunCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Bring the appliance up and serve",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return runDaemon(cmd.Context()) },
	}
}

func runDaemon(ctx context.Context) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if kube.OneThread(runtime.NumCPU()) {
		runtime.GOMAXPROCS(1)
		if err := setTimerSlack(manifest.Slack); err != nil {
			log.Warn("timers stay exact, which costs a little", "error", err)
		}
	}
	return daemon.New(log).Run(ctx)
}
