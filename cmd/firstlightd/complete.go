package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/api"
)

// completeTimeout is how long a person who pressed Tab waits for the daemon.
const completeTimeout = 2 * time.Second

// completeNames lets shells complete what the daemon knows. One that does not answer knows nothing.
func completeNames(socket *string, list func(status.Document) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()

		d, err := api.Client{Socket: *socket}.Status(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}

		return list(d), cobra.ShellCompDirectiveNoFileComp
	}
}

// listNodes are the names of the site's nodes.
func listNodes(d status.Document) []string {
	var all []string
	for _, n := range d.Nodes {
		all = append(all, n.Name)
	}
	return all
}

// listClusterRefs are the names of clusters, those of one name as namespace/name.
func listClusterRefs(d status.Document) []string {
	var all []string
	for _, c := range d.Clusters {
		all = append(all, status.ClusterRef(d.Clusters, c))
	}
	return all
}

// listClusters are the names of clusters.
func listClusters(d status.Document) []string {
	var all []string
	for _, c := range d.Clusters {
		all = append(all, c.Name)
	}
	return all
}
