package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"firstlight.dev/firstlight/daemon/addons/devices"
)

func newDevicesCommand() *cobra.Command {
	var node, host, sockets string
	var configs, drivers []string
	var isQAT bool
	c := &cobra.Command{
		Use:   "devices --node NAME {--config DIR | --qat}",
		Short: "Offer virtual functions of this node's devices to pods, as a pod with the host's network",
		Long: "Offer virtual functions of this node's devices to pods. With --config, they are those that files NAME.json " +
			"select, in the form of the SR-IOV network device plugin. With --qat, they are those of Intel's QuickAssist " +
			"devices, under the names of Intel's QAT device plugin.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			report, stop, err := reportAtNode(c, node)
			if err != nil {
				return err
			}
			defer stop()

			sysfs := devices.Sysfs(filepath.Join(host, "sys"))
			p := devices.Plugin{
				Sysfs:     sysfs,
				Dir:       sockets,
				Resources: func() ([]devices.Resource, []error) { return devices.ReadConfigs(configs) },
				Routed:    devices.FindRouted,
				Report:    report,
				Log:       newLog(c).With("node", node),
			}
			if isQAT {
				for _, d := range drivers {
					if !slices.Contains(devices.QATDrivers(), d) {
						return fmt.Errorf("--qat-drivers: %q is none of %v", d, devices.QATDrivers())
					}
				}
				p.Resources = devices.QAT{Sysfs: sysfs, Drivers: drivers}.Resources
			}
			return p.Run(c.Context())
		},
	}
	c.Flags().StringVar(&node, "node", "", "this node's name")
	c.Flags().StringVar(&host, "host", "/host", "where the node's folder sys is")
	c.Flags().StringVar(&sockets, "sockets", "", "the kubelet's folder of sockets, if it is another than the usual one")
	c.Flags().StringSliceVar(&configs, "config", nil, "folders with files NAME.json")
	c.Flags().BoolVar(&isQAT, "qat", false, "offer QuickAssist devices, and make virtual functions of those that have none")
	c.Flags().StringSliceVar(&drivers, "qat-drivers", devices.QATDrivers(), "kernel drivers of the QuickAssist devices to offer")
	_ = c.MarkFlagRequired("node") // it is there
	c.MarkFlagsOneRequired("config", "qat")
	c.MarkFlagsMutuallyExclusive("config", "qat")
	return c
}

// reportAtNode returns what makes an Event of a fault at a node, and what ends that. Outside of a cluster it does nothing.
func reportAtNode(c *cobra.Command, node string) (report func(string), stop func(), err error) {
	if os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		return func(string) {}, func() {}, nil
	}
	client, _, err := connect()
	if err != nil {
		return nil, nil, err
	}

	recorder, stop := newEvents(c, client, "firstlight-devices", node)
	// The kubelet names nodes so, and kubectl describe finds it by that.
	about := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)}
	return func(fault string) {
		recorder.Event(about, corev1.EventTypeWarning, "DevicesNotOffered", fault)
	}, stop, nil
}
