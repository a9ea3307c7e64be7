// Command firstlight-addons is what the stick's add-ons run on a workload cluster (daemon/addons).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/daemon/addons/multus"
	"firstlight.dev/firstlight/daemon/addons/ovn4nfv"
	"firstlight.dev/firstlight/daemon/addons/sriov"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	// The same program is called by a node's container runtime, by the name of the plugin.
	switch filepath.Base(os.Args[0]) {
	case multus.Name:
		multus.RunPlugin(ctx)
		return
	case sriov.Name:
		sriov.RunPlugin(ctx)
		return
	case ovn4nfv.Name:
		ovn4nfv.RunPlugin(ctx)
		return
	}

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
	c.AddCommand(newPolicyCommand(), newTenantsCommand(), newMultusCommand(), newChainCommand(), newDevicesCommand(),
		newSRIOVCommand(), newMachinesCommand(), newMachineCommand(), newOVNCommand(), newOVN4NFVCommand())
	return c
}
