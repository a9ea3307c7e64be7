package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/api"
	"firstlight.dev/firstlight/daemon/appliance/vault"
)

func newRotateCommand() *cobra.Command {
	var socket string
	long := "Replace a secret of the appliance while the rack is in service. A power cut at any moment is gone on from."
	var use []string
	for _, r := range vault.Rotations() {
		use = append(use, strings.TrimSpace(r.Name+" "+string(r.Of)))
		long += "\n\n" + r.Name + ": " + r.What + "." + r.About
	}
	cmd := &cobra.Command{
		Use:               "rotate " + strings.Join(use, "|"),
		Short:             "Replace a secret of the appliance while the rack is in service",
		Long:              long,
		Args:              checkRotateArgs,
		ValidArgsFunction: completeRotate(&socket),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := api.Client{Socket: socket}.Rotate(cmd.Context(), args[0], args[1:]...)
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), text)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	return cmd
}

// rotatedBy is what the rotation that arguments name is of; the daemon refuses those that there are not.
func rotatedBy(args []string) vault.Rotated {
	all := vault.Rotations()
	i := slices.IndexFunc(all, func(r vault.Rotation) bool { return len(args) > 0 && r.Name == args[0] })
	if i < 0 {
		return vault.RotatedWhole
	}
	return all[i].Of
}

// checkRotateArgs: one secret, of BMCs the nodes that are meant, and the cluster whose authorities are.
func checkRotateArgs(cmd *cobra.Command, args []string) error {
	switch rotatedBy(args) {
	case vault.RotatedNodes:
		return nil
	case vault.RotatedCluster:
		return cobra.ExactArgs(2)(cmd, args)
	}
	return cobra.ExactArgs(1)(cmd, args)
}

func completeRotate(socket *string) cobra.CompletionFunc {
	nodes, clusters := completeNames(socket, listNodes), completeNames(socket, listClusters)
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		switch of := rotatedBy(args); {
		case len(args) == 0:
			var names []cobra.Completion
			for _, r := range vault.Rotations() {
				names = append(names, r.Name)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		case of == vault.RotatedNodes:
			return nodes(cmd, args, begun)
		case of == vault.RotatedCluster && len(args) == 1:
			return clusters(cmd, args, begun)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}
