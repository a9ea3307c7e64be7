// Command firstlight-addons is what the stick's add-ons run on a workload cluster (daemon/clusters/addons).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "firstlight-addons:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	c := &cobra.Command{
		Use:           "firstlight-addons",
		Short:         "What the stick's add-ons run on a workload cluster",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	c.AddCommand(newPolicyCommand(), newTenantsCommand())
	return c
}
