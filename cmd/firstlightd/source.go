package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon"
	"firstlight.dev/firstlight/daemon/appliance/api"
	"firstlight.dev/firstlight/daemon/appliance/sitesource"
)

func newSourceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "source",
		Short: "The source that the site has the appliance follow",
		Long: `The source of site documents, Provisionings and Components that appliance.follow of site.yaml names. How it
stands is in firstlightd status; why a revision is refused, in firstlightd why. docs/sites.md explains it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSourceForgetCommand(), newSourceFetchCommand())
	return cmd
}

func newSourceForgetCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "forget",
		Short: "Forget which revision was applied, so that one that does not descend from it is",
		Long: `Forget which revision of the source was applied. The newest one is then applied whatever its history is. This is for
a repository whose history was written again on purpose; nothing else on the appliance changes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := sitesource.Forget(daemon.SourceRecord); err != nil {
				return err
			}
			if err := (api.Client{Socket: socket}).Reload(cmd.Context()); err != nil {
				return fmt.Errorf("the revision is forgotten, and the source asked at the next start: %w", err)
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "the revision is forgotten, and the source is being asked")
			return err
		},
	}
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	return cmd
}

func newSourceFetchCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "fetch",
		Short:  "Fetch from a source what standard input asks for, without rights; the daemon calls it",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return sitesource.Serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}
