package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/image/lab/container"
	"firstlight.dev/firstlight/image/lab/try"
	"firstlight.dev/firstlight/image/lab/userns"
)

// tryFlags is what the commands of `firstlight try` have in common.
type tryFlags struct {
	dir string
}

// defaultTryDir is where a rack is unless --dir says otherwise.
const defaultTryDir = "build/try"

func newTryCommand() *cobra.Command {
	var f tryFlags
	var up tryUpFlags
	cmd := &cobra.Command{
		Use:   "try",
		Short: "A rack on this machine without emulation: the appliance in namespaces, simulated servers",
		Long: `Run the appliance of an image in namespaces of this machine, with simulated servers that it inspects
and provisions. Its Kubernetes and all of its controllers are the real ones; the servers have a BMC
and a boot agent, but no processor, no bytes on their disks and no system: they stop at provisioned,
and no cluster can be made of them.

It needs no root: an ordinary user's rack is in a user namespace, with the image's root unpacked in its
directory. Root's is in none, and starts from the image as it is.

The rack runs in the background. Its progress is shown until all servers are provisioned; Ctrl-C only
stops watching, and the same command watches again. A rack that is down continues from its directory.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return up.start(cmd, &f) },
	}
	cmd.PersistentFlags().StringVar(&f.dir, "dir", defaultTryDir, "where the rack is")
	cmd.Flags().StringVar(&up.image, "image", "build/firstlight.img", "the stick's image; it is only read, and built if absent")
	cmd.Flags().IntVar(&up.servers, "servers", 3, "number of simulated servers")
	cmd.Flags().BoolVar(&up.ipv6, "ipv6", false, "servers boot by IPv6: no address on their network is of IPv4")
	cmd.Flags().StringVar(&up.daemon, "daemon", "", "a firstlightd to run in place of the image's, such as one with a change")
	cmd.Flags().DurationVar(&up.timeout, "timeout", 0, "give up looking after this long (0: never); the rack continues")
	cmd.AddCommand(
		newTryStatusCommand(&f), newTryWhyCommand(&f), newTryKubectlCommand(&f), newTryShellCommand(&f),
		newTryDownCommand(&f), newTrySuperviseCommand(&f), newTryFirstProcessCommand(),
		newTryAsRootCommand(),
	)
	return cmd
}

// rack is the rack in the directory.
func (f *tryFlags) rack() (try.Rack, error) {
	dir, err := filepath.Abs(f.dir)
	if err != nil {
		return try.Rack{}, fmt.Errorf("find rack: %w", err)
	}

	rack := try.Rack{Dir: dir}
	return rack, rack.CheckOwner()
}

func newTryDownCommand(f *tryFlags) *cobra.Command {
	var remove bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "End the rack, also after a crash; nothing of it remains but its directory",
		Long: `End the rack, also after a crash. Nothing of it remains on this machine but its directory, from
which firstlight try continues as after a power cut; --remove removes that as well.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rack, err := f.rack()
			if err != nil {
				return err
			}

			out := cmd.OutOrStdout()
			if _, err := rack.Order(); errors.Is(err, try.NoRack) {
				fmt.Fprintf(out, "There is no rack in %s.\n", shorten(rack.Dir))
				return nil
			}
			if _, err := rack.TearDown(); err != nil {
				return err
			}
			if !remove {
				fmt.Fprintf(out, "The rack in %s is down; `firstlight try` continues from its directory.\n", shorten(rack.Dir))
				return nil
			}
			again, err := asRootCommand()
			if err != nil {
				return err
			}
			if err := rack.Remove(cmd.Context(), again); err != nil {
				return err
			}

			fmt.Fprintf(out, "The rack in %s is removed.\n", shorten(rack.Dir))
			return nil
		},
	}
	cmd.Flags().BoolVar(&remove, "remove", false, "remove its directory as well")
	return cmd
}

// newTrySuperviseCommand is the process that holds a rack; try starts it.
func newTrySuperviseCommand(f *tryFlags) *cobra.Command {
	return &cobra.Command{
		Use: "supervise", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rack, err := f.rack()
			if err != nil {
				return err
			}

			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("hold rack: %w", err)
			}
			if os.Geteuid() != 0 {
				again, err := asRootCommand()
				if err != nil {
					return err
				}
				return try.SuperviseAsUser(again, program, "try", "supervise", "--dir", rack.Dir)
			}

			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			return try.Supervise(cmd.Context(), rack, append([]string{program}, firstProcessWords...), log)
		},
	}
}

// firstProcessWords is the command line by which container.FirstProcess is reached.
var firstProcessWords = []string{"try", "first-process"}

// newTryFirstProcessCommand becomes the appliance's systemd; the supervisor starts it.
func newTryFirstProcessCommand() *cobra.Command {
	return &cobra.Command{
		Use: "first-process STAGE FILE", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			return container.FirstProcess(firstProcessWords, args[0], args[1])
		},
	}
}

// asRootCommand is the command line by which userns.Main is reached.
func asRootCommand() ([]string, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find firstlight: %w", err)
	}
	return []string{program, "try", "as-root"}, nil
}

// newTryAsRootCommand runs a program as root of a user namespace; what an ordinary user's rack needs of it does so.
func newTryAsRootCommand() *cobra.Command {
	return &cobra.Command{
		Use: "as-root STAGE -- PROGRAM...", Hidden: true, Args: cobra.MinimumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			again, err := asRootCommand()
			if err != nil {
				return err
			}

			err = userns.Main(again, args[0], args[1:])
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.ExitCode() > 0 { // it has said why
				return &commandline.ExitError{Program: args[1], Code: exit.ExitCode()}
			}
			return err
		},
	}
}
