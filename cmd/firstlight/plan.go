package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
)

func newPlanCommand() *cobra.Command {
	var flags builderFlags
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what a build would make, and why",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := flags.builder(cmd)
			if err != nil {
				return err
			}

			steps, err := b.Plan(cmd.Context())
			if err != nil {
				return err
			}
			if flags.output == commandline.JSON {
				return commandline.WriteJSON(cmd.OutOrStdout(), steps)
			}

			for _, step := range steps {
				line := fmt.Sprintf("%-6s %s", step.Action, step.Part)
				if len(step.Why) > 0 {
					line += ": " + summarize(step.Why)
				}
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), line); err != nil {
					return err
				}
			}

			return nil
		},
	}
	flags.bind(cmd)
	flags.bindImage(cmd)
	return cmd
}

// summarize names the first reasons and counts the others.
func summarize(why []string) string {
	const shown = 4
	if len(why) <= shown {
		return strings.Join(why, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(why[:shown], ", "), len(why)-shown)
}
