package main

import (
	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/daemon/addons/policy"
)

func newPolicyCommand() *cobra.Command {
	var node, health string
	c := &cobra.Command{
		Use:   "policy",
		Short: "Enforce NetworkPolicies for the pods of this node, as a pod with the host's network",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			client, _, err := connect()
			if err != nil {
				return err
			}
			table, err := policy.NewTable()
			if err != nil {
				return err
			}

			events, stop := newEvents(c, client, policy.Name, node)
			defer stop()
			a := policy.Agent{
				Node:   node,
				Health: health,
				Client: client,
				Table:  table,
				Events: events,
				Log:    newLog(c),
			}
			return a.Run(c.Context())
		},
	}
	c.Flags().StringVar(&node, "node", "", "name of this node")
	c.Flags().StringVar(&health, "health", "127.0.0.1:9881", "where it answers 200 if policies are enforced")
	_ = c.MarkFlagRequired("node")
	return c
}
