package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/api"
)

func newReplaceCommand() *cobra.Command {
	var socket, word string
	cmd := &cobra.Command{
		Use:   "replace NODE [--confirm WORD]",
		Short: "Let another server take the place of a node's server",
		Long: `Let the server that site.yaml names now take the place of the one that a node had.

Write the MAC and the BMC of the new server into site.yaml first, and run firstlightd reload: the node is held then, and
nothing of the new server is told to the old one. Without --confirm nothing is replaced: what would be is printed, and a
word. With that word the old server is not a node any more. It is not written to; one in service runs on, another one is
switched off. What was known of it stays on DATA. The new one is checked, inspected and installed under the old name,
and what is on its disk is not lost without consent. The word is refused if site.yaml names another server since, or if
another BareMetalHost has the name.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNames(&socket, listNodes),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := api.Client{Socket: socket}.Replace(cmd.Context(), args[0], word)
			if err != nil {
				return err
			}
			if r.Begun {
				fmt.Fprintf(cmd.OutOrStdout(), "%s is replaced: it has %s. firstlightd why %[1]s says how that stands.\n", r.Node, r.New)
				return nil
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s would have %s, and BareMetalHost %s would go.\n"+
				"Nothing was replaced. That is done with: firstlightd replace %[1]s --confirm %[4]s\n", r.Node, r.New, r.Host, r.Word)
			return nil
		},
	}
	bindConfirm(cmd, &word)
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	return cmd
}
