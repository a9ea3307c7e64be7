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

	"firstlight.dev/firstlight/image/lab/view"
	"firstlight.dev/firstlight/image/lab/virtualrack"
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
	cmd.PersistentFlags().StringVar(
		&f.dir, "dir", "build/lab", "where the rack is; another directory is another rack",
	)
	cmd.AddCommand(
		newLabUpCommand(&f), newLabStatusCommand(&f), newLabConsoleCommand(&f), newLabWhyCommand(&f),
		newLabSSHCommand(&f), newLabKubectlCommand(&f), newLabPowerCommand(&f), newLabThrottleCommand(&f), newLabCableCommand(&f),
		newLabDownCommand(&f), newLabDialCommand(&f), newLabSuperviseCommand(&f),
	)
	return cmd
}

// client asks the rack.
func (f *labFlags) client() (virtualrack.Client, error) {
	dir, err := filepath.Abs(f.dir)
	if err != nil {
		return virtualrack.Client{}, fmt.Errorf("find rack: %w", err)
	}
	return virtualrack.Client{Dir: dir}, nil
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

			ended, err := virtualrack.TearDown(c.Dir)
			for _, what := range ended {
				fmt.Fprintln(cmd.OutOrStdout(), "ended", what)
			}

			if err != nil {
				return err
			}
			if _, there, err := virtualrack.ReadOrder(c.Dir); err != nil || !there {
				fmt.Fprintf(cmd.OutOrStdout(), "There is no rack in %s.\n", shorten(c.Dir))
				return err
			}
			if !remove {
				fmt.Fprintf(
					cmd.OutOrStdout(), "The rack in %s is down; `firstlight lab up` continues from its disks.\n",
					shorten(c.Dir),
				)
				return nil
			}

			fmt.Fprintf(cmd.OutOrStdout(), "The rack in %s is removed.\n", shorten(c.Dir))
			return virtualrack.Remove(c.Dir)
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
			return virtualrack.Supervise(cmd.Context(), c.Dir, log)
		},
	}
}

// showLabHelp says how to look inside.
func showLabHelp(w io.Writer, c virtualrack.Client, dir string) error {
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

// waitFlags is how long a rack is looked at.
type waitFlags struct {
	wait    bool
	timeout time.Duration
}

func (w *waitFlags) bind(cmd *cobra.Command) {
	cmd.Flags().DurationVar(
		&w.timeout, "timeout", 0, "with --wait: give up looking after this long (0: never); the rack continues",
	)
}

// defaultTimeout is how long a failure must have stood: much of what fails is mended by the next try,
// and under emulation tries are minutes apart.
const defaultTimeout = 20 * time.Minute

// run shows the rack until it has come to its end, then how long everything took.
func (w *waitFlags) run(cmd *cobra.Command, c virtualrack.Client, run virtualrack.Run) error {
	patience := run.ScaleTimeout(defaultTimeout)
	ctx, cancel := cmd.Context(), context.CancelFunc(func() {})
	if w.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, w.timeout)
	}

	defer cancel()
	last, err := view.Show(ctx, cmd.OutOrStdout(), c, view.NewEndDetector(time.Now, patience))
	out := cmd.OutOrStdout()
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf(
				"stopped looking: %w; the rack continues: firstlight lab status --watch", context.Cause(ctx),
			)
		}
		return err
	}
	if err := view.ShowPhases(out, c, last); err != nil {
		return err
	}
	if !last.Over {
		return errors.New(view.DescribeStuck(last, patience))
	}
	if last.Failed {
		return fmt.Errorf("the rack is not launched: %s; firstlight lab why", last.Text)
	}

	fmt.Fprintf(out, "\n%s\n\n", last.Text)
	for _, cluster := range last.Clusters {
		if err := view.ShowCluster(cmd.Context(), out, c, cluster.Name); err != nil {
			return err
		}
	}

	return showLabHelp(out, c, cmd.Flag("dir").Value.String())
}
