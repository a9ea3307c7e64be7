package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/api"
)

func newRotateCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "rotate nodes|ironic",
		Short: "Replace a secret of the appliance while the rack is in service",
		Long: `Replace a secret of the appliance while the rack is in service. A power cut at any moment is gone on from.

nodes: the SSH log-in to nodes. The next key is brought to every node by the current one; when every node has answered,
it is used, and the former one is taken from every node. Both let the appliance in until then.

ironic: the password of Ironic's API. Ironic and its operator restart; servers notice nothing.`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"nodes", "ironic"},
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := api.Client{Socket: socket}.Rotate(cmd.Context(), args[0])
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), text)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	return cmd
}
