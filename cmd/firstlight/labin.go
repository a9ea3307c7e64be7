package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/image/lab/view"
	"firstlight.dev/firstlight/image/lab/virtualrack"
	"firstlight.dev/firstlight/image/lab/vswitch"
)

func newLabConsoleCommand(f *labFlags) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "console NAME",
		Short: "Print what a machine said on its serial line, all its lives",
		Args:  cobra.ExactArgs(1),

		ValidArgsFunction: f.completeMachines(),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.client()
			if err != nil {
				return err
			}

			path, err := c.Console(args[0])
			if err != nil {
				return err
			}

			log, err := os.Open(path)
			if err != nil {
				return fmt.Errorf("read console: %w", err)
			}
			defer log.Close()

			for {
				if _, err := io.Copy(cmd.OutOrStdout(), log); err != nil || !follow {
					return err
				}
				select {
				case <-cmd.Context().Done():
					return nil
				case <-time.After(200 * time.Millisecond):
				}
			}
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on as it says more")
	return cmd
}

func newLabSSHCommand(f *labFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ssh NAME [COMMAND...]",
		Short: "Log in to the appliance, or through it to a node, or run a command there",
		Args:  cobra.MinimumNArgs(1),

		ValidArgsFunction: f.completeMachines(),
		RunE: func(_ *cobra.Command, args []string) error {
			return labSSH(f, args[0], args[1:])
		},
	}
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func newLabKubectlCommand(f *labFlags) *cobra.Command {
	return newKubectlCommand(&f.dir, func(cmd *cobra.Command, args []string) error {
		return labSSH(f, virtualrack.Appliance, append([]string{"kubectl"}, quoteArgs(args)...))
	})
}

// newKubectlCommand passes all arguments on but --dir, which says whose appliance it is.
func newKubectlCommand(dir *string, run func(cmd *cobra.Command, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl ARGUMENTS...",
		Short:              "Run kubectl on the appliance",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "-h" || args[0] == "--help" {
				return cmd.Help()
			}
			if ours, rest, ok := leadingDir(args); ok { // the one flag that is ours
				*dir, args = ours, rest
			}
			return run(cmd, args)
		},
	}
}

// leadingDir takes --dir from the front of arguments that are kubectl's otherwise.
func leadingDir(args []string) (dir string, rest []string, ok bool) {
	if len(args) > 1 && args[0] == "--dir" {
		return args[1], args[2:], true
	}
	if dir, ok := strings.CutPrefix(args[0], "--dir="); ok {
		return dir, args[1:], true
	}
	return "", args, false
}

// quoteArgs makes arguments pass the shell that sshd starts.
func quoteArgs(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return out
}

// labSSH becomes ssh, so that its exit code and its terminal are ssh's own.
func labSSH(f *labFlags, machine string, command []string) error {
	c, err := f.client()
	if err != nil {
		return err
	}

	args, err := c.SSH(machine)
	if err != nil {
		return err
	}
	if _, err := c.Status(context.Background()); err != nil {
		return err
	}

	path, err := exec.LookPath(args[0])
	if err != nil {
		return fmt.Errorf("find ssh: %w; `scripts/deps lab` installs it", err)
	}

	return fmt.Errorf("run %s: %w", path, syscall.Exec(
		path, sshCommand(args, command, term.IsTerminal(int(os.Stdin.Fd())) && view.Terminal(os.Stdout) != nil),
		os.Environ(),
	))
}

// sshCommand has ssh run a command. By itself ssh asks for a terminal only where no command is given: a
// person whose input and output are terminals may run top, or exec -it into a pod.
func sshCommand(args, command []string, terminals bool) []string {
	if terminals && len(command) > 0 {
		args = slices.Insert(slices.Clone(args), 1, "-t")
	}
	return append(args, command...)
}

// newLabDialCommand is ssh's way to the machines: standard input and output of a TCP port.
func newLabDialCommand(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use: "dial HOST PORT", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.client()
			if err != nil {
				return err
			}

			conn, err := c.Dial(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			defer conn.Close()

			done := make(chan error, 2)
			go func() { _, err := io.Copy(conn, cmd.InOrStdin()); done <- err }()
			go func() { _, err := io.Copy(cmd.OutOrStdout(), conn); done <- err }()
			select {
			case err = <-done:
			case <-cmd.Context().Done():
			}

			return err
		},
	}
}

func newLabPowerCommand(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "power NAME|all on|off|reset|button|pause|resume",
		Short: "Press a button of a machine; off is the plug, button asks its system to end",
		Long: `Press a button of a machine, or of all: off is the plug, button asks the system to end.
pause stops a machine and its time, so that this computer is free for something else;
resume lets it go on as if nothing had happened.`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: f.completeMachines([]string{"on", "off", "reset", "button", "pause", "resume"}),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.client()
			if err != nil {
				return err
			}
			return c.Press(cmd.Context(), args[0], args[1])
		},
	}
}

// bindShare adds the flag of how much of this computer a machine may have.
func bindShare(flags *pflag.FlagSet, share *float64) {
	flags.Float64Var(
		share, "cpus", 0, "processors of this computer that a machine may have, such as 0.5 (0: as many as it wants)",
	)
}

// checkShare refuses what the rack would, before there is one.
func checkShare(share float64) error {
	if err := virtualrack.CheckShare(share); err != nil {
		return commandline.NewUsageError(fmt.Errorf("--cpus: %w", err))
	}
	return nil
}

func newLabThrottleCommand(f *labFlags) *cobra.Command {
	var share float64
	cmd := &cobra.Command{
		Use:   "throttle NAME|all",
		Short: "Let a machine have only a share of this computer's processors; without flags it is free again",
		Long: `Let a machine, or each of all, have only so many of this computer's processors, whatever
else is free: it becomes a slower computer. Its own clocks run on. It counts at once, through
the machine's power off and on, until the rack goes down. Without flags the machine is free again.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.completeMachines(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkShare(share); err != nil {
				return err
			}

			c, err := f.client()
			if err != nil {
				return err
			}

			return c.Throttle(cmd.Context(), args[0], share)
		},
	}
	bindShare(cmd.Flags(), &share)
	return cmd
}

func newLabCableCommand(f *labFlags) *cobra.Command {
	var fault vswitch.Fault
	var which virtualrack.Cables
	var percent float64
	cmd := &cobra.Command{
		Use:   "cable NAME",
		Short: "Spoil a machine's cables; without flags they are good again",
		Args:  cobra.ExactArgs(1),

		ValidArgsFunction: f.completeMachines(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if percent < 0 || percent > 100 {
				return commandline.NewUsageError(errors.New("--loss is 0 to 100"))
			}

			c, err := f.client()
			if err != nil {
				return err
			}

			fault.Loss = percent / 100
			return c.SetFault(cmd.Context(), args[0], which, fault)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&which.Network, "network", "", "only those to provisioning, bmc, baremetal or data")
	flags.IntVar(&which.Card, "card", 0, "of these only that of the first card, of the second, and so on; 0: all")
	flags.Float64Var(&percent, "loss", 0, "percent of the frames that are lost")
	flags.DurationVar(&fault.Delay, "delay", 0, "of every frame")
	flags.BoolVar(&fault.Cut, "cut", false, "nothing passes")
	flags.BoolVar(&fault.Out, "out", false, "unplugged: nothing passes, and the machine sees that there is no link")
	flags.IntVar(&fault.Side, "side", 0, "only machines of the same side hear each other")
	return cmd
}
