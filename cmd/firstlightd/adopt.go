package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/api"
)

func newAdoptCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "adopt NODE... | --all",
		Short: "Take servers that run into service as they are",
		Long: `Take servers of site.yaml that this appliance has no record of into service as they are.

Their BMCs and disks are not written to. Afterwards they are kept as if this appliance had installed them with the
image that site.yaml names. --all takes those that wait for it: they run, a disk of theirs says that an appliance
installed them, or their record on DATA cannot be read.`,
	}
	return forNodes(cmd, api.Client.Adopt, "is adopted")
}

// forNodes has a command ask the daemon to act on the nodes that it names, or on all that wait for it, and print what
// each of them then is.
func forNodes(
	cmd *cobra.Command,
	act func(c api.Client, ctx context.Context, nodes ...string) ([]string, error),
	done string,
) *cobra.Command {
	var socket string
	var all bool
	cmd.ValidArgsFunction = completeNames(&socket, listNodes)
	cmd.RunE = func(cmd *cobra.Command, nodes []string) error {
		if all == (len(nodes) > 0) {
			return commandline.NewUsageError(errors.New("name the nodes, or give --all"))
		}
		for i, node := range nodes {
			if slices.Contains(nodes[:i], node) {
				return commandline.NewUsageError(fmt.Errorf("%s is named twice", node))
			}
		}

		changed, err := act(api.Client{Socket: socket}, cmd.Context(), nodes...)
		for _, node := range changed {
			fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", node, done)
		}

		return err
	}
	cmd.Flags().BoolVar(&all, "all", false, "every one that waits for it")
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	return cmd
}
