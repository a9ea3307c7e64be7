package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"firstlight.dev/firstlight/daemon/clusters/kpa/operator"
)

func newKPACommand() *cobra.Command {
	var c operator.Config
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "kpa",
		Short: "Run the operator of what runs on clusters (what its pod runs)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return fmt.Errorf("find the API: %w", err)
			}

			api.QPS, api.Burst = 50, 100
			log := slog.New(slog.NewTextHandler(os.Stderr, nil))
			runForever(
				cmd.Context(), log, 10*time.Second,
				func(ctx context.Context) error { return operator.Run(ctx, api, c, log) },
			)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "how to reach the API; in a pod nothing is needed")
	f.StringVar(&c.Namespace, "namespace", "bpa", "the operator's own namespace, with the lock")
	f.StringVar(&c.Folder, "folder", "", "where sources that are folders are")
	f.StringVar(&c.Bundles, "bundles", "", "where uploaded bundles are, OWNER/NAME/VERSION")
	f.BoolVar(&c.Elect, "elect", true, "wait until no other operator runs")
	f.BoolVar(&c.Own, "own", false, "clusters may be on this very machine, as those of measurements are")
	f.StringVar(&c.Health, "health", "0", "address to serve /readyz at; 0 for none")
	return cmd
}
