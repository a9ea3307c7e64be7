package main

import (
	"log/slog"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/daemon/appliance/kube"
	"firstlight.dev/firstlight/daemon/metal/registry"
)

func newRegistryCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "registry",
		Short: "Serve container images to nodes, with what the daemon tells",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if kube.OneThread(runtime.NumCPU()) {
				runtime.GOMAXPROCS(1)
			}
			log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("part", "registry")
			return registry.NewProcess(log).Run(cmd.Context())
		},
	}
}
