package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets"
)

func newVersionCommand() *cobra.Command {
	var output format
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output == formatJSON {
				return writeJSON(cmd.OutOrStdout(), map[string]string{"version": assets.Version})
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), assets.Version)
			return err
		},
	}
	output.bind(cmd)
	return cmd
}
