package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/guest"
	"firstlight.dev/firstlight/assets/manifest"
	"firstlight.dev/firstlight/daemon"
	"firstlight.dev/firstlight/daemon/appliance/kube"
)

func newRunCommand() *cobra.Command {
	var isGuest bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Bring the appliance up and serve",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if isGuest {
				return runGuest(cmd.Context())
			}
			return runDaemon(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&isGuest, "guest", false, "on a Kubernetes and a machine of someone else's (what the pod of firstlight manifests runs)")
	return cmd
}

// runGuest runs the daemon in its pod. What the pod says of itself is where it places others.
func runGuest(ctx context.Context) error {
	p, err := guest.Parse(os.Getenv(guest.Variable))
	if err != nil {
		return fmt.Errorf("%w; --guest is for the pod that firstlight manifests describes", err)
	}
	return daemon.NewGuest(slog.New(slog.NewTextHandler(os.Stderr, nil)), p).Run(ctx)
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
