package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/api"
)

func newAdoptCommand() *cobra.Command {
	var socket string
	var all bool
	cmd := &cobra.Command{
		Use:   "adopt NODE... | --all",
		Short: "Take servers that run into service as they are",
		Long: `Take servers of site.yaml that this appliance has no record of into service as they are.

Their BMCs and disks are not written to. Afterwards they are kept as if this appliance had installed them with the
image that site.yaml names. --all takes those that wait for it: they run, a disk of theirs says that an appliance
installed them, or their record on DATA cannot be read.`,
		ValidArgsFunction: completeNames(&socket, listNodes),
		RunE: func(cmd *cobra.Command, nodes []string) error {
			if all == (len(nodes) > 0) {
				return commandline.NewUsageError(errors.New("name the nodes, or give --all"))
			}
			for i, node := range nodes {
				if slices.Contains(nodes[:i], node) {
					return commandline.NewUsageError(fmt.Errorf("%s is named twice", node))
				}
			}

			adopted, err := api.Client{Socket: socket}.Adopt(cmd.Context(), nodes...)
			for _, node := range adopted {
				fmt.Fprintf(cmd.OutOrStdout(), "%s is adopted\n", node)
			}

			return err
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "every node that waits for it")
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	return cmd
}
