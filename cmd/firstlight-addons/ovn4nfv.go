package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/daemon/addons/cniprogram"
	"firstlight.dev/firstlight/daemon/addons/ovn"
	"firstlight.dev/firstlight/daemon/addons/ovn4nfv"
	"firstlight.dev/firstlight/daemon/addons/ovsdb"
)

func newOVN4NFVCommand() *cobra.Command {
	c := &cobra.Command{Use: "ovn4nfv", Short: "Give pods interfaces on networks of OVN", Args: cobra.NoArgs}
	c.AddCommand(newOVN4NFVOperatorCommand(), newOVN4NFVAgentCommand())
	return c
}

func newOVN4NFVOperatorCommand() *cobra.Command {
	var certificates, database string
	c := &cobra.Command{
		Use:   "operator",
		Short: "Decide what pods get, and write OVN's northbound database",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			client, objects, err := connect()
			if err != nil {
				return err
			}
			events, stop := newEvents(c, client, "firstlight-ovn4nfv", "")
			defer stop()
			o := &ovn4nfv.Operator{
				Client:  client,
				Objects: objects,
				Northbound: func(ctx context.Context) (*ovsdb.Conn, error) {
					config, err := ovn.Certificates(certificates).ClientConfig()
					if err != nil {
						return nil, err
					}
					return ovsdb.Dial(ctx, database, config)
				},
				Events: events,
				Log:    newLog(c),
			}
			return o.Run(c.Context())
		},
	}
	c.Flags().StringVar(&certificates, "certificates", "/tls", "folder of certificates")
	c.Flags().StringVar(&database, "database", fmt.Sprintf("ssl:%s:%d", ovn.CentralHost, ovn.NorthboundPort),
		"the northbound database")
	return c
}

func newOVN4NFVAgentCommand() *cobra.Command {
	var node, address, host string
	c := &cobra.Command{
		Use:   "agent --node NAME --address ADDRESS",
		Short: "Keep the CNI plugin on this node, and its part of provider networks",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			own, err := netip.ParseAddr(address)
			if err != nil || !own.Is4() {
				return fmt.Errorf("--address: %q is no IPv4 address", address)
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			config, err := rest.InClusterConfig()
			if err != nil {
				return fmt.Errorf("find the cluster: %w", err)
			}
			client, objects, err := connect()
			if err != nil {
				return err
			}
			events, stop := newEvents(c, client, "firstlight-ovn4nfv", node)
			defer stop()

			dirs := ovn4nfv.NodeDirs(host)
			a := &ovn4nfv.Agent{
				Node: node, Address: own, Dirs: dirs, Self: self,
				Installer: &cniprogram.Installer{Programs: dirs.Programs, State: dirs.State},
				Config:    config, Client: client, Objects: objects, Events: events, Log: newLog(c),
			}
			return a.Run(c.Context())
		},
	}
	c.Flags().StringVar(&node, "node", "", "this node's name")
	c.Flags().StringVar(&address, "address", "", "this node's address")
	c.Flags().StringVar(&host, "host", "/host", "where the node's folders are")
	_ = c.MarkFlagRequired("node")    // it is there
	_ = c.MarkFlagRequired("address") // it is there
	return c
}
