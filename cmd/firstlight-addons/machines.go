package main

import (
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/daemon/addons/machines"
	"firstlight.dev/firstlight/daemon/addons/machines/kvm"
	"firstlight.dev/firstlight/daemon/addons/machines/launcher"
)

func newMachinesCommand() *cobra.Command {
	var image string
	c := &cobra.Command{
		Use:   "machines --image IMAGE",
		Short: "Run VirtualMachines as pods",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := rest.InClusterConfig()
			if err != nil {
				return err
			}
			return machines.Run(c.Context(), api, image, newLog(c))
		},
	}
	c.Flags().StringVar(&image, "image", "", "what the pods of machines run")
	_ = c.MarkFlagRequired("image") // it is there
	c.AddCommand(newKVMCommand())
	return c
}

func newKVMCommand() *cobra.Command {
	p := kvm.Plugin{Resource: string(machines.KVMResource), Check: launcher.CheckKVM}
	c := &cobra.Command{
		Use:   "kvm",
		Short: "Offer this node's KVM to the pods of machines, if it works",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			p.Log = newLog(c)
			return p.Run(c.Context())
		},
	}
	c.Flags().StringVar(&p.Dir, "dir", "/var/lib/kubelet/device-plugins", "the kubelet's folder for plugins")
	c.Flags().StringVar(&p.Device, "device", launcher.KVMDevice, "where the node's device is")
	c.Flags().DurationVar(&p.Interval, "interval", 30*time.Second, "between two checks")
	return c
}

// newMachineCommand is what runs in the pod of one machine.
func newMachineCommand() *cobra.Command {
	c := &cobra.Command{Use: "machine", Short: "Run the machine of this pod, or reach it", Args: cobra.NoArgs}
	c.AddCommand(&cobra.Command{
		Use:   "run",
		Short: "Prepare disks, run QEMU, and power the machine down when this is ended",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			l := launcher.Launcher{Console: c.OutOrStdout(), Stderr: c.ErrOrStderr(), Log: newLog(c)}
			err := l.Run(c.Context())
			if err != nil {
				// The kubelet passes this on to the controller.
				err = errors.Join(err, os.WriteFile(terminationLog, []byte(err.Error()), 0o600))
			}
			return err
		},
	}, &cobra.Command{
		Use:   "console",
		Short: "Show the machine's serial console: kubectl exec -it POD -- firstlight-addons machine console",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return launcher.Attach(c.Context(), "", int(os.Stdin.Fd()), c.InOrStdin(), c.OutOrStdout())
		},
	}, &cobra.Command{
		Use:   "ready",
		Short: "End with code 0 if the machine runs",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return launcher.CheckRunning(c.Context(), "") },
	})
	return c
}

// terminationLog is where a container says why it ended.
const terminationLog = "/dev/termination-log"
