package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/docs"
)

func newDocsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "docs [PAGE]",
		Short: "Print a page of the documentation, which messages name as docs/PAGE.md",
		Long: `Print a page of the documentation. Without an argument, their names.

  firstlightd docs metal
  firstlightd docs docs/clusters.md | more`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return docs.Pages(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), strings.Join(docs.Pages(), "\n"))
				return err
			}
			text, err := docs.Read(args[0])
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
}
