package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/api"
)

func newBMCCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bmc",
		Short: "Say which BMCs may be told their passwords",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBMCTrustCommand())
	return cmd
}

func newBMCTrustCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "trust NODE [SHA256]",
		Short: "Accept the new certificate of a node's BMC",
		Long: `Accept the certificate that the BMC of a node shows in place of the one that is pinned.

A BMC whose certificate changed is told no password until someone says that it is still that BMC: it was replaced, or
somebody gave it a new certificate. Compare the fingerprint with what the BMC's own web page or console shows; with
SHA256 only that certificate is accepted.`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completeNames(&socket, listNodes),
		RunE: func(cmd *cobra.Command, args []string) error {
			fingerprint := ""
			if len(args) > 1 {
				fingerprint = args[1]
			}

			t, err := api.Client{Socket: socket}.TrustBMC(cmd.Context(), args[0], fingerprint)
			if err != nil {
				return err
			}

			fmt.Fprintf(cmd.OutOrStdout(), "the BMC of %s is trusted with sha256 %s, before %s\n", args[0], t.Now,
				cmp.Or(t.Before, "not readable"))
			return nil
		},
	}
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	return cmd
}
