package main

import (
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/daemon/addons/tenants"
)

func newTenantsCommand() *cobra.Command {
	remove := false
	c := &cobra.Command{
		Use:   "tenants",
		Short: "Give Tenants their namespaces, roles, quotas and isolation",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := rest.InClusterConfig()
			if err != nil {
				return err
			}
			log := newLog(cmd)
			if remove {
				return tenants.Remove(cmd.Context(), api, log)
			}
			return tenants.Run(cmd.Context(), api, log)
		},
	}
	c.Flags().BoolVar(&remove, "remove", false, "stop the controller, release all namespaces and let all Tenants go")
	return c
}
