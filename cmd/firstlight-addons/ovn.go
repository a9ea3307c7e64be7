package main

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/daemon/addons/ovn"
)

func newOVNCommand() *cobra.Command {
	c := &cobra.Command{Use: "ovn", Short: "Run OVN on the nodes of this cluster", Args: cobra.NoArgs}
	c.AddCommand(newUnderlayCommand(), newProgramCommand(), newCertificatesCommand(), newReadyCommand(), newChassisCommand())
	return c
}

func newUnderlayCommand() *cobra.Command {
	var node, address string
	var once bool
	c := &cobra.Command{
		Use:   "underlay --node NAME --address ADDRESS",
		Short: "Keep this node's namespace of Open vSwitch, and what its tunnels need",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			own, err := netip.ParseAddr(address)
			if err != nil || !own.Is4() {
				return fmt.Errorf("--address: %q is no IPv4 address; the add-on ovn needs nodes with IPv4", address)
			}
			u := &ovn.Underlay{Node: node, Address: own, Log: newLog(c)}
			if once {
				return u.Prepare()
			}
			client, _, err := connect()
			if err != nil {
				return err
			}
			if err := u.Run(c.Context()); err != nil {
				return err
			}
			return u.Leave(context.WithoutCancel(c.Context()), client.AppsV1().DaemonSets(ovn.SystemNamespace))
		},
	}
	c.Flags().StringVar(&node, "node", "", "this node's name")
	c.Flags().StringVar(&address, "address", "", "this node's address")
	c.Flags().BoolVar(&once, "once", false, "make the namespace, and end")
	_ = c.MarkFlagRequired("node")    // it is there
	_ = c.MarkFlagRequired("address") // it is there
	return c
}

// newCentral has the folders of the central part's pod.
func newCentral() ovn.Central { return ovn.Central{Run: "/run/ovn", State: "/var/lib/firstlight-ovn"} }

func newChassisCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "chassis",
		Short: "Have OVN forget nodes that left the cluster",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			client, _, err := connect()
			if err != nil {
				return err
			}
			return newCentral().ChassisOf(client.CoreV1().Nodes(), newLog(c)).Run(c.Context())
		},
	}
}

func newProgramCommand() *cobra.Command {
	var certificates string
	central := newCentral()
	programs := map[string]func() ovn.Program{
		"database":   ovn.NodeDatabase,
		"switch":     ovn.Switch,
		"controller": func() ovn.Program { return ovn.Controller(ovn.Certificates(certificates)) },
		"northbound": func() ovn.Program { return central.Northbound(ovn.Certificates(filepath.Join(certificates, "nb"))) },
		"southbound": func() ovn.Program { return central.Southbound(ovn.Certificates(filepath.Join(certificates, "sb"))) },
		"northd":     central.Northd,
	}
	c := &cobra.Command{
		Use:   "run {database|switch|controller|northbound|southbound|northd}",
		Short: "Become one of the programs of Open vSwitch and OVN",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			program, ok := programs[args[0]]
			if !ok {
				return fmt.Errorf("%q is no program; %s", args[0], c.UseLine())
			}
			return program().Exec(c.Context())
		},
	}
	c.Flags().StringVar(&certificates, "certificates", "/tls", "folder of certificates")
	return c
}

func newCertificatesCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "certificates {central|node}",
		Short: "Make certificates of OVN's databases, or wait for those of a node",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, _, err := connect()
			if err != nil {
				return err
			}
			switch args[0] {
			case "central":
				return ovn.EnsureSecrets(c.Context(), client, dir)
			case "node":
				return ovn.FetchCertificates(c.Context(), client, ovn.SouthboundClient, dir)
			}
			return fmt.Errorf("%q is no side; %s", args[0], c.UseLine())
		},
	}
	c.Flags().StringVar(&dir, "dir", "/tls", "folder of certificates")
	return c
}

func newReadyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ready {central|node}",
		Short: "End with code 0 if OVN's central part, or its part of this node, is ready",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			switch args[0] {
			case "central":
				return newCentral().Check(c.Context())
			case "node":
				return ovn.CheckNode(c.Context())
			}
			return fmt.Errorf("%q is no part; %s", args[0], c.UseLine())
		},
	}
}
