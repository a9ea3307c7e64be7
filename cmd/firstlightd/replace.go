package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/api"
)

func newReplaceCommand() *cobra.Command {
	var socket, confirm string
	cmd := &cobra.Command{
		Use:   "replace NODE --confirm NODE",
		Short: "Let another server take the place of a node's server",
		Long: `Let the server that site.yaml names now take the place of the one that a node had.

Write the MAC and the BMC of the new server into site.yaml first, and run firstlightd reload: the node is held then, and
nothing of the new server is told to the old one. After this command the old server is not a node any more. It is not
written to; one in service runs on, another one is switched off. What was known of it stays on DATA. The new one is
checked, inspected and installed under the old name, and what is on its disk is not lost without consent.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNames(&socket, listNodes),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := api.Client{Socket: socket}.Replace(cmd.Context(), args[0], confirm)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is replaced: it has %s. firstlightd why %[1]s says how that stands.\n", args[0], text)
			return nil
		},
	}
	cmd.Flags().StringVar(&confirm, "confirm", "", "the name of the node again")
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	return cmd
}
