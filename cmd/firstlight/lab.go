package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
		&f.dir, "dir", "build/lab", "where the rack lies; another directory is another rack",
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
					cmd.OutOrStdout(), "The rack in %s is down; `firstlight lab up` goes on from its disks.\n",
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
		&w.timeout, "timeout", 0, "with --wait: give up looking after this long (0: never); the rack goes on",
	)
}

// defaultTimeout is how long a failure must have stood: much of what fails is mended by the next try,
// and under emulation tries are minutes apart.
const defaultTimeout = 20 * time.Minute

// newEndDetector tells when a rack has come to its end: at once when all is well or nothing goes on, after some
// patience when something else has failed, or nothing has changed.
func newEndDetector(now func() time.Time, patience time.Duration) func(virtualrack.Status) bool {
	var failed, changed time.Time
	var last virtualrack.Status
	return func(s virtualrack.Status) bool {
		if changed.IsZero() || isProgressing(last, s, now()) {
			changed = now()
		}

		last = s
		if !s.Over || !s.Failed || s.Dead {
			failed = time.Time{}
			return s.Over || now().Sub(changed) >= patience
		}

		if failed.IsZero() {
			failed = now()
		}

		return now().Sub(failed) >= patience
	}
}

// isProgressing tells whether anything of a rack has changed that is more than its age.
func isProgressing(before, after virtualrack.Status, now time.Time) bool {
	seen := func(s virtualrack.Status) (all []any) {
		all = append(all, s.Over, s.Failed, s.Text)
		for _, m := range s.Machines {
			all = append(all, m.Percent, m.Last)
		}

		for _, c := range s.Clusters {
			all = append(all, c.Percent, c.Why)
		}

		return all
	}
	return !slices.Equal(seen(before), seen(after)) || virtualrack.RenderChanges(before, after, now) != ""
}

// describeStuck says what a rack waits for that does not get on, and what to do.
func describeStuck(s virtualrack.Status, long time.Duration) string {
	var all []string
	for _, m := range s.Machines {
		switch {
		case m.Paused:
			all = append(all, m.Name+" is paused")
		case m.Share > 0:
			all = append(all, fmt.Sprintf("%s is in %s and throttled", m.Name, m.Phase))
		case m.Phase != virtualrack.PhaseVerified && m.Phase != virtualrack.PhaseReady:
			all = append(all, m.Name+" is in "+m.Phase)
		}
	}

	for _, cluster := range s.Clusters {
		all = append(all, "cluster "+cluster.Name+" is "+cluster.Phase)
	}

	return fmt.Sprintf(`the rack does not get on: nothing has changed for %.0f min (%s). It is on still: "firstlight lab why" says what each machine waits for. If this computer is too slow or busy, end what else runs and look on with "firstlight lab up --wait", or begin anew with one node: "firstlight lab down --remove", "firstlight lab up --nodes 1 --wait"`,
		long.Minutes(), strings.Join(all, ", "))
}

// run shows the rack until it has come to its end, then how long everything took.
func (w *waitFlags) run(cmd *cobra.Command, c virtualrack.Client, run virtualrack.Run) error {
	patience := run.ScaleTimeout(defaultTimeout)
	ctx, cancel := cmd.Context(), context.CancelFunc(func() {})
	if w.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, w.timeout)
	}

	defer cancel()
	last, err := showLab(ctx, cmd.OutOrStdout(), c, newEndDetector(time.Now, patience))
	out := cmd.OutOrStdout()
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf(
				"stopped looking: %w; the rack goes on: firstlight lab status --watch", context.Cause(ctx),
			)
		}
		return err
	}
	if err := showPhases(out, c, last); err != nil {
		return err
	}
	if !last.Over {
		return errors.New(describeStuck(last, patience))
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
