package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/image/lab/accelerator"
	"firstlight.dev/firstlight/image/lab/virtualrack"
)

// upFlags is what the command line of `firstlight lab up` says.
type upFlags struct {
	want     virtualrack.Order
	firmware string
	bmc      string
	accel    string
	share    float64
	fit      bool
	waiting  waitFlags
}

func newLabUpCommand(f *labFlags) *cobra.Command {
	u := upFlags{want: virtualrack.DefaultOrder()}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Make a rack and switch it on, or switch the one that is there on again",
		Long: `Make a rack and switch it on. A rack that is there is kept: what was on when it went
down is switched on again and continues from its disks. The rack runs in the background;
--wait stays until every node is installed and proven and the cluster of them is ready,
and may be interrupted and asked again at any time.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return u.start(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&u.want.Image, "image", "build/firstlight.img", "the stick's image; it is only read")
	flags.StringVar(
		&u.want.System, "system", "",
		"raw image of a disk with a system that has systemd and cloud-init: the appliance is installed on that, instead of "+
			"starting from the stick; it is only read",
	)
	flags.IntVar(&u.want.Nodes, "nodes", u.want.Nodes, "number of nodes")
	flags.StringVar(
		&u.firmware, "firmware", string(u.want.Firmware),
		"of the nodes: bios, uefi, or mixed (node-1 BIOS, node-2 UEFI, …)",
	)
	flags.StringVar(
		&u.bmc, "bmc", string(u.want.BMC), "of the nodes: ipmi, redfish, or mixed (node-1 IPMI, node-2 Redfish, …)",
	)
	flags.IntVar(&u.want.MiB, "memory", u.want.MiB, "memory of a node, MiB")
	flags.IntVar(&u.want.DiskGiB, "disk", u.want.DiskGiB, "size of a node's disk, GiB")
	flags.IntVar(&u.want.Disks, "disks", u.want.Disks, "disks of a node; the system goes to the first")
	flags.IntVar(
		&u.want.NICs, "nics", u.want.NICs,
		"network cards of a node; the second and further ones are on a network of their own",
	)
	flags.BoolVar(
		&u.want.Gateway, "gateway", false, "add an owner's network with a gateway and a resolver; they lead nowhere",
	)
	flags.IntVar(&u.want.Appliance, "appliance-memory", u.want.Appliance, "memory of the appliance, MiB")
	flags.IntVar(&u.want.CPUs, "appliance-cpus", u.want.CPUs, "processors of the appliance")
	flags.StringVar(&u.want.NICModel, "appliance-nic", "", "QEMU's device that the appliance's cards are, such as e1000e (default virtio-net-pci)")
	flags.IntVar(&u.want.StickGiB, "stick", u.want.StickGiB, "size of the stick, or of the disk of --system, GiB")
	flags.BoolVar(&u.want.Capture, "capture", false, "write what passes the switch to *.pcap; of TCP only the headers")
	flags.BoolVar(&u.want.Cluster, "cluster", u.want.Cluster, "install one Kubernetes of all nodes")
	bindAccel(flags, &u.accel)
	bindShare(flags, &u.share)
	flags.BoolVar(
		&u.want.EmptySite, "empty-site", false, "name no nodes in the site, only networks: hosts and clusters come by kubectl",
	)
	flags.BoolVar(
		&u.want.Discover, "discover", false,
		fmt.Sprintf("name no node in the site, only how many there are (--nodes, else %d): the appliance finds their BMCs "+
			"and switches them on", virtualrack.DiscoveredNodes),
	)
	flags.IntVar(
		&u.want.VLAN, "vlan", 0, "tag of the provisioning network at the appliance's port, 1 to 4094; its servers' ports have none",
	)
	flags.BoolVar(&u.want.Bond, "bond", false, "two cards of the appliance on the provisioning network, as a bond")
	flags.BoolVar(&u.fit, "fit", false, "measure this computer first, say what to expect, and without --nodes take one node where two do not suit it")
	u.waiting.bind(cmd)
	flags.BoolVar(
		&u.waiting.wait, "wait", false, "stay until every node is installed and proven, and the cluster is ready",
	)
	return cmd
}

// start makes the rack, decides what its run needs, and switches it on.
func (u upFlags) start(cmd *cobra.Command, f *labFlags) error {
	c, err := f.client()
	if err != nil {
		return err
	}
	if u.waiting.timeout != 0 && !u.waiting.wait {
		return commandline.NewUsageError(errors.New("--timeout is how long --wait looks; give both"))
	}
	if err := checkShare(u.share); err != nil {
		return err
	}

	if u.want.Discover && !cmd.Flags().Changed("nodes") {
		u.want.Nodes = virtualrack.DiscoveredNodes
	}

	u.want.Firmware, u.want.BMC = virtualrack.Firmware(u.firmware), virtualrack.BMCs(u.bmc)
	order, err := labOrder(c.Dir, u.want, cmd.Flags().Changed)
	if err != nil {
		return err
	}
	if err := order.Check(); err != nil {
		return commandline.NewUsageError(err)
	}

	run, err := u.decideRun(cmd, c, &order)
	if err != nil {
		return err
	}

	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start rack: %w", err)
	}
	if err := virtualrack.Create(c.Dir, program, order); err != nil {
		return err
	}

	fresh, err := virtualrack.Start(cmd.Context(), c.Dir, run, program, "lab", "supervise", "--dir", c.Dir)
	if err != nil {
		return err
	}

	if cmd.Flags().Changed("cpus") {
		if err := c.Throttle(cmd.Context(), virtualrack.All, u.share); err != nil {
			return err
		}
	}

	out, say := cmd.OutOrStdout(), "The rack is on"
	if !fresh {
		say = "The rack was on already"
	}

	fmt.Fprintf(out, "%s: an appliance and %s, in %s.\n", say, commandline.Amount(order.Nodes, "node"), shorten(c.Dir))
	if !fresh || !u.fit { // else it is said
		fmt.Fprintf(out, "%s.\n", run.Accel)
	}

	if virtualrack.IsOutdated(c.Dir, order) {
		fmt.Fprintf(
			out,
			"It keeps the stick it was made with; %s was built again since. For the new one: down --remove, then up.\n",
			shorten(order.Image),
		)
	}

	if u.waiting.wait {
		return u.waiting.run(cmd, c, run)
	}

	return showLabHelp(out, c, f.dir)
}

// decideRun is the run that begins, or the one that is: a machine does not change what runs its processors. A new
// rack that is to fit this computer is given its number of nodes.
func (u upFlags) decideRun(
	cmd *cobra.Command,
	c virtualrack.Client,
	order *virtualrack.Order,
) (virtualrack.Run, error) {
	ctx := cmd.Context()
	if _, err := c.Status(ctx); err == nil {
		run, err := c.Run()
		if err == nil && u.accel != "" && accelerator.Kind(u.accel) != run.Accel.Kind {
			err = fmt.Errorf(
				"the rack in %s is on, %s; `firstlight lab down` first, --accel is decided with `up`", shorten(c.Dir),
				run.Accel,
			)
		}
		return run, err
	}

	choice, err := accelerator.Choose(ctx, u.accel)
	if err != nil {
		return virtualrack.Run{}, commandline.NewUsageError(err)
	}
	if !u.fit {
		return virtualrack.Run{Accel: choice}, nil
	}

	host, err := virtualrack.MeasureHost(ctx, choice)
	if err != nil {
		return virtualrack.Run{}, err
	}

	_, there, err := virtualrack.ReadOrder(c.Dir)
	if err != nil {
		return virtualrack.Run{}, err
	}

	asked := 0
	if there || order.Discover || cmd.Flags().Changed("nodes") {
		asked = order.Nodes
	}

	host.Share = u.share
	fit := host.Fit(*order, asked)
	order.Nodes = fit.Nodes
	for _, line := range fit.Text {
		fmt.Fprintln(cmd.OutOrStdout(), line)
	}

	return virtualrack.Run{Accel: choice, TimeoutFactor: fit.TimeoutFactor}, nil
}

// labOrder is the order of the rack that is there, with what the command line says otherwise.
func labOrder(dir string, want virtualrack.Order, changed func(flag string) bool) (virtualrack.Order, error) {
	image, err := filepath.Abs(want.Image)
	if err != nil {
		return want, fmt.Errorf("find image: %w", err)
	}

	want.Image = image
	if want.System != "" {
		if want.System, err = filepath.Abs(want.System); err != nil {
			return want, fmt.Errorf("find system: %w", err)
		}
	}
	have, ok, err := virtualrack.ReadOrder(dir)
	if err != nil || !ok {
		return want, err
	}

	for flag, take := range map[string]func(){
		"image": func() { have.Image = want.Image }, "system": func() { have.System = want.System },
		"appliance-nic": func() { have.NICModel = want.NICModel }, "nodes": func() { have.Nodes = want.Nodes }, "firmware": func() { have.Firmware = want.Firmware },
		"bmc":    func() { have.BMC = want.BMC },
		"memory": func() { have.MiB = want.MiB }, "disk": func() { have.DiskGiB = want.DiskGiB }, "disks": func() { have.Disks = want.Disks },
		"nics": func() { have.NICs = want.NICs }, "gateway": func() { have.Gateway = want.Gateway }, "appliance-memory": func() { have.Appliance = want.Appliance },
		"appliance-cpus": func() { have.CPUs = want.CPUs },
		"cluster":        func() { have.Cluster = want.Cluster }, "stick": func() { have.StickGiB = want.StickGiB }, "capture": func() { have.Capture = want.Capture },
		"empty-site": func() { have.EmptySite = want.EmptySite },
		"discover":   func() { have.Discover = want.Discover },
		"vlan":       func() { have.VLAN = want.VLAN }, "bond": func() { have.Bond = want.Bond },
	} {
		if changed(flag) {
			take()
		}
	}

	return have, nil
}
