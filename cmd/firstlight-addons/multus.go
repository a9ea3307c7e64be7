package main

import (
	"os"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/daemon/addons/multus"
)

func newMultusCommand() *cobra.Command {
	var node, host string
	var once bool
	c := &cobra.Command{
		Use:   "multus --node NAME",
		Short: "Keep the plugin on this node that gives pods further networks",
		Long: "Keep the plugin on this node that gives pods further networks, compatible with Multus. The variables " +
			"NAMESPACE_ISOLATION (true) and GLOBAL_NAMESPACES (names, commas between) are upstream's options.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}

			agent := &multus.Agent{
				Node:  node,
				Dirs:  multus.NodeDirs(host),
				Image: "/usr/lib/firstlight/cni",
				Self:  self,
				Options: multus.Options{
					Isolation:        os.Getenv("NAMESPACE_ISOLATION") == "true",
					GlobalNamespaces: os.Getenv("GLOBAL_NAMESPACES"),
				},
				Log: newLog(c),
			}
			if once {
				return agent.Install(c.Context())
			}
			return agent.Run(c.Context())
		},
	}
	c.Flags().StringVar(&node, "node", "", "this node's name")
	c.Flags().StringVar(&host, "host", "/host", "where the node's folders are")
	c.Flags().BoolVar(&once, "once", false, "end when all is installed")
	_ = c.MarkFlagRequired("node") // it is there
	return c
}
