package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/image"
)

func newLockCommand() *cobra.Command {
	var flags builderFlags
	cmd := &cobra.Command{
		Use:   "lock",
		Short: "Resolve the recipe to the newest versions and write assets/recipe.lock",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := flags.builder(cmd)
			if err != nil {
				return err
			}

			changes, err := b.Lock(cmd.Context())
			if err != nil {
				return err
			}
			if flags.output == commandline.JSON {
				return commandline.WriteJSON(cmd.OutOrStdout(), append([]string{}, changes...))
			}

			for _, change := range changes {
				fmt.Fprintln(cmd.OutOrStdout(), change)
			}

			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d changes in %s\n", len(changes), image.LockPath)
			return err
		},
	}
	flags.bind(cmd)
	return cmd
}
