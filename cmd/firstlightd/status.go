package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/api"
	"firstlight.dev/firstlight/daemon/console"
)

func newStatusCommand() *cobra.Command {
	var output, socket string
	var wait string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the appliance is: its stages, addresses and what it waits for",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return usageError{fmt.Errorf("output %q is unknown; use json", output)}
			}
			until := map[string]func(status.Document) (bool, error){"launch": api.Launched, "appliance": api.Ready}[wait]
			if until == nil && wait != "" {
				return usageError{fmt.Errorf("wait %q is unknown; use launch or appliance", wait)}
			}
			ctx := cmd.Context()
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
			ask := api.Client{Socket: socket}.Status
			if until != nil {
				ask = func(ctx context.Context) (status.Document, error) { return api.Client{Socket: socket}.Wait(ctx, until) }
			}
			d, err := ask(ctx)
			if d.Version == "" {
				return err
			}
			if output == "json" {
				b, jerr := json.MarshalIndent(d, "", "  ")
				if jerr != nil {
					return errors.Join(err, jerr)
				}
				fmt.Fprintln(cmd.OutOrStdout(), string(b))
				return err
			}
			fmt.Fprint(cmd.OutOrStdout(), console.Text(d, time.Now()))
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json: print the whole document")
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	cmd.Flags().StringVar(&wait, "wait", "", "return when the appliance is ready and every node of the site proven, or as soon as that fails; --wait=appliance: when the appliance is ready")
	cmd.Flags().Lookup("wait").NoOptDefVal = "launch"
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "give up after this long (0: never)")
	return cmd
}

func newReloadCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Read the site again and look at every stage anew",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return api.Client{Socket: socket}.Reload(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	return cmd
}
