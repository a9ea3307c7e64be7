package main

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/api"
	"firstlight.dev/firstlight/daemon/appliance/console"
)

func newWhyCommand() *cobra.Command {
	var output commandline.Format
	var socket string
	var problems bool
	cmd := &cobra.Command{
		Use:   "why [NODE|CLUSTER]",
		Short: "Say of every node and cluster, or of one, what it does, since when, what it waits for and what to do",
		Args:  cobra.MaximumNArgs(1),
		ValidArgsFunction: completeNames(&socket, func(d status.Document) []string {
			return append(listNodes(d), listClusters(d)...)
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			client := api.Client{Socket: socket}
			nodes, err := client.Why(cmd.Context())
			if err != nil {
				return err
			}

			d, err := client.Status(cmd.Context())
			if err != nil {
				return err
			}

			clusters := d.Clusters
			if problems {
				nodes, clusters = filterProblems(nodes, clusters)
			}

			if len(args) == 0 && output != commandline.JSON {
				writeStages(cmd.OutOrStdout(), unfinishedStages(d.Stages))
				if d.Source != nil && (!problems || d.Source.State == status.SourceRefused) {
					fmt.Fprintln(cmd.OutOrStdout(), console.SourceText(d.Source))
				}
			}

			if len(args) == 1 {
				if nodes, clusters = filterByName(nodes, clusters, args[0]); len(nodes)+len(clusters) == 0 {
					return fmt.Errorf("nothing is known of %q: no node of site.yaml, no machine on the provisioning network and no cluster is called so", args[0])
				}
			}

			switch {
			case output == commandline.JSON && len(args) == 1 && len(nodes) == 0:
				return commandline.WriteJSON(cmd.OutOrStdout(), clusters)
			case output == commandline.JSON:
				return commandline.WriteJSON(cmd.OutOrStdout(), nodes)
			case problems && len(nodes)+len(clusters)+len(d.Attention().Components) == 0 && !d.Attention().Source && !hasStuckUpdate(d.Clusters):
				fmt.Fprintln(cmd.OutOrStdout(), "No node and no cluster needs a person.")
			case len(args) == 0 && !problems || len(nodes) > 0:
				writeWhy(cmd.OutOrStdout(), nodes, len(args) == 1, time.Now())
			}

			writeClusters(cmd.OutOrStdout(), clusters)
			if problems {
				clusters = d.Clusters // what runs on a sound cluster may need somebody
			}

			writeUpdates(cmd.OutOrStdout(), clusters, problems)
			writeComponents(cmd.OutOrStdout(), d.Components, clusters, len(args) == 0, problems)
			if len(args) == 1 && len(nodes) == 1 {
				writeLeftovers(cmd.OutOrStdout(), d.Clusters, nodes[0].Name)
			}

			return nil
		},
	}
	output.Bind(cmd)
	cmd.Flags().BoolVar(&problems, "problems", false, "only what needs a person")
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	return cmd
}

// filterProblems are the nodes and clusters that need a person, machines that nobody named among them.
func filterProblems(nodes []status.Node, clusters []status.Cluster) ([]status.Node, []status.Cluster) {
	return slices.DeleteFunc(slices.Clone(nodes), func(n status.Node) bool { return n.Next == "" }),
		slices.DeleteFunc(slices.Clone(clusters), func(c status.Cluster) bool { return c.Error == "" })
}

// hasStuckUpdate reports whether a NodeUpdate needs a person.
func hasStuckUpdate(clusters []status.Cluster) bool {
	return slices.ContainsFunc(clusters, func(c status.Cluster) bool {
		return slices.ContainsFunc(c.Updates, status.NodeUpdate.IsStuck)
	})
}

// unfinishedStages are the stages of the bring-up that were begun and do not hold.
func unfinishedStages(all []status.Stage) []status.Stage {
	return slices.DeleteFunc(slices.Clone(all), func(s status.Stage) bool {
		return s.State == status.StateReady || s.State == status.StateWaiting
	})
}

// writeStages writes a line per stage: what it does or waits for, and the last error.
func writeStages(w io.Writer, stages []status.Stage) {
	for _, s := range stages {
		fmt.Fprintf(w, "stage %s", s.Name)
		if s.Title != "" {
			fmt.Fprintf(w, " (%s)", s.Title)
		}

		fmt.Fprintf(w, " is %s", s.State)
		for _, text := range []string{s.Waiting, s.Error} {
			if text != "" {
				fmt.Fprintf(w, ": %s", text)
			}
		}
		fmt.Fprintln(w)
	}
}

// filterByName are the node, else the cluster, of a name.
func filterByName(nodes []status.Node, clusters []status.Cluster, name string) ([]status.Node, []status.Cluster) {
	if i := slices.IndexFunc(nodes, func(n status.Node) bool { return strings.EqualFold(n.Name, name) }); i >= 0 {
		return nodes[i : i+1], nil
	}
	if i := slices.IndexFunc(clusters, func(c status.Cluster) bool { return strings.EqualFold(c.Name, name) }); i >= 0 {
		return nil, clusters[i : i+1]
	}
	return nil, nil
}

// writeLeftovers writes what clusters say of a server that they let go of.
func writeLeftovers(w io.Writer, clusters []status.Cluster, name string) {
	for _, c := range clusters {
		for _, l := range c.Leftovers {
			if strings.EqualFold(path.Base(l.Host), name) {
				fmt.Fprintf(w, "  %s\n", l.Text)
			}
		}
	}
}

// writeClusters writes a line per cluster, and below it one for each of its nodes.
func writeClusters(w io.Writer, clusters []status.Cluster) {
	for _, c := range clusters {
		fmt.Fprintf(w, "cluster %s is %s", c.Name, c.State)
		if text := cmp.Or(c.Error, c.Text); text != "" {
			fmt.Fprintf(w, ": %s", text)
		}

		fmt.Fprintln(w)
		for _, m := range c.Members {
			fmt.Fprintf(w, "  %s\n", console.ClusterNodeText(m))
		}

		for _, text := range c.Warnings {
			fmt.Fprintf(w, "  %s\n", text)
		}
	}
}

// writeUpdates writes what of the NodeUpdates of clusters is not ready, a line for each; problems are those alone that
// need a person.
func writeUpdates(w io.Writer, clusters []status.Cluster, problems bool) {
	for _, c := range clusters {
		for _, u := range c.Updates {
			if u.State != "ready" && (u.IsStuck() || !problems) {
				fmt.Fprintf(w, "node update %s of %s is %s: %s\n", u.Name, c.Name, u.State, u.Text)
			}
		}
	}
}

// writeComponents writes what of these clusters is not ready or skipped, a line for each.
func writeComponents(
	w io.Writer, components []status.Component, clusters []status.Cluster, appliance, problems bool,
) {
	for _, c := range components {
		for _, on := range c.On {
			asked := appliance && on.Cluster == status.ComponentTarget ||
				slices.ContainsFunc(clusters, func(k status.Cluster) bool { return k.Name == on.Cluster })
			isWell := on.State == status.ComponentReady || problems && !status.ComponentNeedsPerson(on.State)
			if asked && !isWell {
				fmt.Fprintf(w, "component %s on %s is %s: %s\n", c.Name, on.Cluster, on.State, on.Text)
			}
		}
	}
}

// writeWhy writes a line per node, and below it what to do; of a single node also its checks.
func writeWhy(w io.Writer, nodes []status.Node, checks bool, now time.Time) {
	if len(nodes) == 0 {
		fmt.Fprintln(w, "The site names no node, and no machine was heard on the provisioning network.")
	}
	for _, n := range nodes {
		fmt.Fprintf(w, "%s %s", n.Name, n.Why)
		if !n.Since.IsZero() {
			fmt.Fprintf(w, ", for %s", console.FormatDuration(now.Sub(n.Since)))
		}

		fmt.Fprintln(w)
		if n.Next != "" {
			fmt.Fprintf(w, "  -> %s\n", n.Next)
		}

		if !checks {
			continue
		}

		if n.Erased != "" {
			fmt.Fprintf(w, "  %s\n", n.Erased)
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
