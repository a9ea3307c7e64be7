package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

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
		newLabSSHCommand(&f), newLabKubectlCommand(&f), newLabPowerCommand(&f), newLabThrottleCommand(&f), newLabCableCommand(&f),
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
