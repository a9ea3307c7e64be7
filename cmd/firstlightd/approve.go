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

func newApproveCommand() *cobra.Command {
	var socket string
	var all bool
	cmd := &cobra.Command{
		Use:   "approve NODE... | --all",
		Short: "Make nodes of machines that the site's policy found",
		Long: `Make nodes of machines that booted from the network and that discover of site.yaml allows.

firstlightd unknown lists them with the names that they get. From then on they are nodes as if site.yaml named them:
checked, inspected, installed and verified. --all takes those that await approval now.`,
		RunE: func(cmd *cobra.Command, nodes []string) error {
			if all == (len(nodes) > 0) {
				return commandline.NewUsageError(errors.New("name the nodes, or give --all"))
			}
			for i, node := range nodes {
				if slices.Contains(nodes[:i], node) {
					return commandline.NewUsageError(fmt.Errorf("%s is named twice", node))
				}
			}

			approved, err := api.Client{Socket: socket}.Approve(cmd.Context(), nodes...)
			for _, node := range approved {
				fmt.Fprintf(cmd.OutOrStdout(), "%s is a node now\n", node)
			}

			return err
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "every machine that awaits it")
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	return cmd
}
