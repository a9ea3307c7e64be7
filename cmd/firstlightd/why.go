package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/api"
	"firstlight.dev/firstlight/daemon/console"
)

func newWhyCommand() *cobra.Command {
	var output format
	var socket string
	cmd := &cobra.Command{
		Use:   "why [NODE]",
		Short: "Say of every node, or of one, what it does, since when, what it waits for and what to do",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes, err := api.Client{Socket: socket}.Why(cmd.Context())
			if err != nil {
				return err
			}
			if len(args) == 1 {
				i := slices.IndexFunc(nodes, func(n status.Node) bool { return strings.EqualFold(n.Name, args[0]) })
				if i < 0 {
					return fmt.Errorf("nothing is known of %q: no node of site.yaml and no machine on the provisioning network is called so", args[0])
				}
				nodes = nodes[i : i+1]
			}
			if output == formatJSON {
				return writeJSON(cmd.OutOrStdout(), nodes)
			}
			writeWhy(cmd.OutOrStdout(), nodes, len(args) == 1, time.Now())
			return nil
		},
	}
	output.bind(cmd)
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	return cmd
}

// writeWhy writes a line per node, and below it what to do; of a single node also its checks.
func writeWhy(w io.Writer, nodes []status.Node, checks bool, now time.Time) {
	if len(nodes) == 0 {
		fmt.Fprintln(w, "The site names no node, and no machine was heard on the provisioning network.")
	}
	for _, n := range nodes {
		fmt.Fprintf(w, "%s %s", n.Name, n.Why)
		if !n.Since.IsZero() {
			fmt.Fprintf(w, ", for %s", console.Since(now.Sub(n.Since)))
		}
		fmt.Fprintln(w)
		if n.Next != "" {
			fmt.Fprintf(w, "  -> %s\n", n.Next)
		}
		if !checks {
			continue
		}
		for _, list := range []struct {
			name   string
			checks []status.Check
		}{{"pre-flight", n.Preflight}, {"proof", n.Checks}} {
			for _, c := range list.checks {
				fmt.Fprintf(w, "  %-10s %-10s %-8s %s\n", list.name, c.Name, c.State, c.Text)
			}
		}
	}
}
