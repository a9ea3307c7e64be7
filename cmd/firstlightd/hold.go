package main

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/daemon/engine/ctrlmanager"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

func newHoldCommand() *cobra.Command {
	return &cobra.Command{
		Use:   metal3.HoldCommand + " DIR",
		Short: "Hold hosts that someone applies, for the API server that a guest is on (what the operator's pod runs)",
		Long: `Answer the webhooks by which the API server of someone else's Kubernetes has hosts paused that someone applies, until the
appliance has checked them. DIR has tls.crt and tls.key.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctrlmanager.SetLogger(slog.New(slog.NewTextHandler(os.Stderr, nil)))
			return metal3.ServeHold(cmd.Context(), args[0])
		},
	}
}
