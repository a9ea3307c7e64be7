package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/daemon/addons/cniprogram"
	"firstlight.dev/firstlight/daemon/addons/devices"
	"firstlight.dev/firstlight/daemon/addons/sriov"
	"firstlight.dev/firstlight/daemon/addons/sriovnodes"
)

func newSRIOVCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "sriov",
		Short: "Set up virtual functions of network devices, and make networks of them",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(newSRIOVNodeCommand(), newSRIOVOperatorCommand())
	return c
}

func newSRIOVNodeCommand() *cobra.Command {
	var node, host, resources string
	c := &cobra.Command{
		Use:   "node --node NAME",
		Short: "Keep this node's virtual functions as SriovNetworkNodePolicies say, and its CNI plugin",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			client, objects, err := connect()
			if err != nil {
				return err
			}
			report, stop, err := reportAtNode(c, node)
			if err != nil {
				return err
			}
			defer stop()

			agent := &sriovnodes.Agent{
				Node: node,
				Machine: sriovnodes.Machine{
					Sysfs:      devices.Sysfs(filepath.Join(host, "sys")),
					Configured: filepath.Join(host, "var/lib/cni/sriov/configured.json"),
				},
				Resources: resources,
				Kubelet:   filepath.Join(host, "var/lib/kubelet/pod-resources/kubelet.sock"),
				CNI:       sriov.NodeDirs(host),
				Routed:    devices.FindRouted,
				Self:      self,
				Installer: &cniprogram.Installer{
					Programs: filepath.Join(host, "opt/cni/bin"),
					State:    filepath.Join(host, "var/lib/cni/sriov"),
				},
				Nodes:   client.CoreV1(),
				Objects: objects,
				Report:  report,
				Log:     newLog(c).With("node", node),
			}
			return agent.Run(c.Context())
		},
	}
	c.Flags().StringVar(&node, "node", "", "this node's name")
	c.Flags().StringVar(&host, "host", "/host", "where the node's folders are")
	c.Flags().StringVar(&resources, "resources", "/run/sriov/policies.json", "file for the device plugin")
	_ = c.MarkFlagRequired("node") // it is there
	return c
}

func newSRIOVOperatorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "operator",
		Short: "Write the definitions of SriovNetworks, and drain nodes whose virtual functions must change",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			client, objects, err := connect()
			if err != nil {
				return err
			}
			events, stop := newEvents(c, client, "firstlight-sriov", "")
			defer stop()

			o := &sriovnodes.Operator{
				Client:  client,
				Objects: objects,
				Events:  events,
				Log:     newLog(c),
			}
			return o.Run(c.Context())
		},
	}
}
