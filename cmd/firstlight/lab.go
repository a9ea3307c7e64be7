package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/image/lab/desk"
)

// labFlags is what the commands of `firstlight lab` have in common.
type labFlags struct {
	dir string
}

func newLabCommand() *cobra.Command {
	var f labFlags
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "A rack in QEMU: an appliance and blank nodes, without root",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&f.dir, "dir", "build/lab", "where the rack lies; another directory is another rack")
	cmd.AddCommand(
		newLabUpCommand(&f), newLabStatusCommand(&f), newLabConsoleCommand(&f), newLabWhyCommand(&f),
		newLabSSHCommand(&f), newLabKubectlCommand(&f), newLabPowerCommand(&f), newLabCableCommand(&f),
		newLabDownCommand(&f), newLabDialCommand(&f), newLabSuperviseCommand(&f),
	)
	return cmd
}

// client asks the rack.
func (f *labFlags) client() (desk.Client, error) {
	dir, err := filepath.Abs(f.dir)
	if err != nil {
		return desk.Client{}, fmt.Errorf("find rack: %w", err)
	}
	return desk.Client{Dir: dir}, nil
}

func newLabUpCommand(f *labFlags) *cobra.Command {
	want := desk.Defaults()
	var firmware string
	var w waiting
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Make a rack and switch it on, or switch the one that is there on again",
		Long: `Make a rack and switch it on. A rack that is there is kept: what was on when it went
down is switched on again and goes on from its disks. The rack runs in the background;
--wait stays until every node is installed and proven and the cluster of them is ready,
and may be interrupted and asked again at any time.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.client()
			if err != nil {
				return err
			}
			if w.timeout != 0 && !w.wait {
				return commandline.Usage(errors.New("--timeout is how long --wait looks; give both"))
			}
			want.Firmware = desk.Firmware(firmware)
			order, err := labOrder(c.Dir, want, cmd.Flags().Changed)
			if err != nil {
				return err
			}
			if err := order.Check(); err != nil {
				return commandline.Usage(err)
			}
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("start rack: %w", err)
			}
			if err := desk.Make(c.Dir, program, order); err != nil {
				return err
			}
			fresh, err := desk.Start(cmd.Context(), c.Dir, program, "lab", "supervise", "--dir", c.Dir)
			if err != nil {
				return err
			}
			say := "The rack is on"
			if !fresh {
				say = "The rack was on already"
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: an appliance and %d nodes, in %s.\n", say, order.Nodes, shorten(c.Dir))
			if desk.Outdated(c.Dir, order) {
				fmt.Fprintf(cmd.OutOrStdout(), "It keeps the stick it was made with; %s was built anew since. For the new one: down --remove, then up.\n", shorten(order.Image))
			}
			if w.wait {
				return w.run(cmd, c)
			}
			return showLabHelp(cmd.OutOrStdout(), c, f.dir)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&want.Image, "image", "build/firstlight.img", "the stick's image; it is only read")
	flags.IntVar(&want.Nodes, "nodes", want.Nodes, "number of nodes")
	flags.StringVar(&firmware, "firmware", string(want.Firmware), "of the nodes: bios, uefi, or mixed (node-1 BIOS, node-2 UEFI, …)")
	flags.IntVar(&want.MiB, "memory", want.MiB, "memory of a node, MiB")
	flags.IntVar(&want.DiskGiB, "disk", want.DiskGiB, "size of a node's disk, GiB")
	flags.IntVar(&want.Disks, "disks", want.Disks, "disks of a node; the system goes to the first")
	flags.IntVar(&want.NICs, "nics", want.NICs, "network cards of a node; the second and further ones are on a network of their own")
	flags.BoolVar(&want.Gateway, "gateway", false, "add an owner's network with a gateway and a resolver; they lead nowhere")
	flags.IntVar(&want.Appliance, "appliance-memory", want.Appliance, "memory of the appliance, MiB")
	flags.IntVar(&want.StickGiB, "stick", want.StickGiB, "size of the stick, GiB")
	flags.BoolVar(&want.Capture, "capture", false, "write what passes the switch to *.pcap; of TCP only the headers")
	flags.BoolVar(&want.Cluster, "cluster", want.Cluster, "install one Kubernetes of all nodes")
	w.bind(cmd)
	flags.BoolVar(&w.wait, "wait", false, "stay until every node is installed and proven, and the cluster is ready")
	return cmd
}

// labOrder is the order of the rack that is there, with what the command line says otherwise.
func labOrder(dir string, want desk.Order, changed func(flag string) bool) (desk.Order, error) {
	image, err := filepath.Abs(want.Image)
	if err != nil {
		return want, fmt.Errorf("find image: %w", err)
	}
	want.Image = image
	have, ok, err := desk.Ordered(dir)
	if err != nil || !ok {
		return want, err
	}
	for flag, take := range map[string]func(){
		"image": func() { have.Image = want.Image }, "nodes": func() { have.Nodes = want.Nodes }, "firmware": func() { have.Firmware = want.Firmware },
		"memory": func() { have.MiB = want.MiB }, "disk": func() { have.DiskGiB = want.DiskGiB }, "disks": func() { have.Disks = want.Disks },
		"nics": func() { have.NICs = want.NICs }, "gateway": func() { have.Gateway = want.Gateway }, "appliance-memory": func() { have.Appliance = want.Appliance },
		"cluster": func() { have.Cluster = want.Cluster }, "stick": func() { have.StickGiB = want.StickGiB }, "capture": func() { have.Capture = want.Capture },
	} {
		if changed(flag) {
			take()
		}
	}
	return have, nil
}

func newLabDownCommand(f *labFlags) *cobra.Command {
	var remove bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "End the rack: exactly what up started, also after a crash",
		Long: `End the rack: exactly what up started, also after a crash. Its disks stay, and up goes
on from them as servers do after a power cut; --remove removes them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.client()
			if err != nil {
				return err
			}
			ended, err := desk.Down(c.Dir)
			for _, what := range ended {
				fmt.Fprintln(cmd.OutOrStdout(), "ended", what)
			}
			if err != nil {
				return err
			}
			if _, there, err := desk.Ordered(c.Dir); err != nil || !there {
				fmt.Fprintf(cmd.OutOrStdout(), "There is no rack in %s.\n", shorten(c.Dir))
				return err
			}
			if !remove {
				fmt.Fprintf(cmd.OutOrStdout(), "The rack in %s is down; `firstlight lab up` goes on from its disks.\n", shorten(c.Dir))
				return nil
			}
			fmt.Fprintf(cmd.OutOrStdout(), "The rack in %s is removed.\n", shorten(c.Dir))
			return desk.Remove(c.Dir)
		},
	}
	cmd.Flags().BoolVar(&remove, "remove", false, "remove its disks, logs and keys as well")
	return cmd
}

// newLabSuperviseCommand is the process that holds a rack; up starts it.
func newLabSuperviseCommand(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use: "supervise", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.client()
			if err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelDebug}))
			return desk.Supervise(cmd.Context(), c.Dir, log)
		},
	}
}

// showLabHelp says how to look inside.
func showLabHelp(w io.Writer, c desk.Client, dir string) error {
	r, err := c.Rack()
	if err != nil {
		return err
	}
	lab := "firstlight lab"
	if program, err := os.Executable(); err == nil {
		lab = shorten(program) + " lab"
	}
	if dir != "build/lab" {
		lab += " --dir " + dir
	}
	_, err = fmt.Fprintf(w, `Look inside:
  %[1]s status --watch
  %[1]s why
  %[1]s console %[2]s -f
  %[1]s ssh appliance
  %[1]s kubectl get bmh -A
  %[1]s ssh %[2]s        (once it is installed)
End it: %[1]s down --remove
`, lab, r.Nodes[0].Name)
	return err
}

// waiting is how long a rack is looked at.
type waiting struct {
	wait    bool
	timeout time.Duration
}

func (w *waiting) bind(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&w.timeout, "timeout", 0, "with --wait: give up looking after this long (0: never); the rack goes on")
}

// patience is how long a failure must have stood: much of what fails is mended by the next try,
// and under emulation tries are minutes apart.
const patience = 20 * time.Minute

// ended tells when a rack has come to its end: at once when all is well or nothing goes on, after
// some patience when something else has failed.
func ended(now func() time.Time) func(desk.Status) bool {
	var failed time.Time
	return func(s desk.Status) bool {
		if !s.Over || !s.Failed || s.Dead {
			failed = time.Time{}
			return s.Over
		}
		if failed.IsZero() {
			failed = now()
		}
		return now().Sub(failed) >= patience
	}
}

// run shows the rack until it has come to its end, then how long everything took.
func (w *waiting) run(cmd *cobra.Command, c desk.Client) error {
	ctx, cancel := cmd.Context(), context.CancelFunc(func() {})
	if w.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, w.timeout)
	}
	defer cancel()
	last, err := showLab(ctx, cmd.OutOrStdout(), c, ended(time.Now))
	out := cmd.OutOrStdout()
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("stopped looking: %w; the rack goes on: firstlight lab status --watch", context.Cause(ctx))
		}
		return err
	}
	if err := showPhases(out, c, last); err != nil {
		return err
	}
	if last.Failed {
		return fmt.Errorf("the rack is not launched: %s; firstlight lab why", last.Text)
	}
	fmt.Fprintf(out, "\n%s\n\n", last.Text)
	for _, cluster := range last.Clusters {
		if err := showCluster(cmd.Context(), out, c, cluster.Name); err != nil {
			return err
		}
	}
	return showLabHelp(out, c, cmd.Flag("dir").Value.String())
}
