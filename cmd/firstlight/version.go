package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/commandline"
)

func newVersionCommand() *cobra.Command {
	var output commandline.Format
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output == commandline.JSON {
				return commandline.WriteJSON(cmd.OutOrStdout(), map[string]string{"version": assets.Version})
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), assets.Version)
			return err
		},
	}
	output.Bind(cmd)
	return cmd
}
