package main

import (
	"time"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/image/lab/view"
)

func newLabWhyCommand(f *labFlags) *cobra.Command {
	var output commandline.Format
	cmd := &cobra.Command{
		Use:   "why [NODE]",
		Short: "Say what each machine does and waits for",
		Args:  cobra.MaximumNArgs(1),

		ValidArgsFunction: f.completeMachines(),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.client()
			if err != nil {
				return err
			}

			if len(args) == 1 {
				if _, err := c.Console(args[0]); err != nil {
					return err
				}
			}

			s, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}

			reasons := view.ListReasons(s, args, time.Now())
			if output == commandline.JSON {
				return commandline.WriteJSON(cmd.OutOrStdout(), reasons)
			}

			return reasons.Write(cmd.OutOrStdout())
		},
	}
	output.Bind(cmd)
	return cmd
}
