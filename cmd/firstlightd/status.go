package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/api"
	"firstlight.dev/firstlight/daemon/appliance/console"
)

func newStatusCommand() *cobra.Command {
	var output commandline.Format
	var socket, wait string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "status [--wait [launch|appliance]]",
		Short: "Show how the appliance is: its stages, addresses and what it waits for",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			until, err := parseWait(wait, args)
			if err != nil {
				return commandline.NewUsageError(err)
			}

			ctx := cmd.Context()
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}

			ask := api.Client{Socket: socket}.Status
			if until != nil {
				ask = func(ctx context.Context) (status.Document, error) {
					return api.Client{Socket: socket}.Wait(ctx, until)
				}
			}

			d, err := ask(ctx)
			if d.Version == "" {
				return err
			}
			if output == commandline.JSON {
				return errors.Join(err, commandline.WriteJSON(cmd.OutOrStdout(), d))
			}

			fmt.Fprint(cmd.OutOrStdout(), console.RenderText(d, time.Now()))
			return err
		},
	}
	output.Bind(cmd)
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	cmd.Flags().StringVar(&wait, "wait", "", "return when the appliance is ready and every node of the site proven, or as soon as that fails; --wait appliance: when the appliance is ready")
	cmd.Flags().Lookup("wait").NoOptDefVal = waitLaunch
	commandline.CompleteFlag(cmd, "wait", waitLaunch, "appliance")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "give up after this long (0: never)")
	return cmd
}

// waitLaunch is what --wait alone waits for.
const waitLaunch = "launch"

// parseWait is what --wait says, or the word after it, which cobra takes for an argument; nil without --wait.
func parseWait(wait string, args []string) (func(status.Document) (bool, error), error) {
	if len(args) > 0 {
		if wait != waitLaunch {
			return nil, fmt.Errorf("%q is not expected; only --wait has a word behind it", args[0])
		}
		wait = args[0]
	}
	switch wait {
	case "":
		return nil, nil
	case waitLaunch:
		return api.LaunchFinished, nil
	case "appliance":
		return api.ApplianceReady, nil
	}
	return nil, fmt.Errorf("wait %q is unknown; use launch or appliance", wait)
}

func newReloadCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Read the site again and check every stage again",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return api.Client{Socket: socket}.Reload(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	return cmd
}
