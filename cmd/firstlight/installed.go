package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/image/install"
	"firstlight.dev/firstlight/image/lab/container"
)

func newInstalledCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "installed",
		Short: "Use the appliance that is installed on this machine (root)",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, c := range applianceCommands {
		cmd.AddCommand(newInstalledPassCommand(c.name, c.short, "firstlightd", c.name))
	}
	cmd.AddCommand(
		newInstalledPassCommand("login", "Print a code by which a browser logs in to the page", "firstlightd", "login"),
		newInstalledPassCommand("kubectl", "Run kubectl on the appliance", "kubectl"),
		newInstalledShellCommand(),
		newInstalledRunCommand(),
		newInstalledFirstProcessCommand(),
		newInstalledGiveBackCommand(),
	)
	return cmd
}

// newInstalledPassCommand is a command of the appliance, which gets all words that follow.
func newInstalledPassCommand(name, short string, words ...string) *cobra.Command {
	return &cobra.Command{
		Use:   name + " [ARGUMENTS...]",
		Short: short,
		Long: fmt.Sprintf(`%s.

All words behind it are its own; firstlight installed %s -- --help lists those that it knows.`, short, name),
		DisableFlagParsing:    true,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && (args[0] == "-h" || args[0] == "--help") {
				return cmd.Help()
			}
			if len(args) > 0 && args[0] == "--" {
				args = args[1:]
			}
			return becomeInstalled(cmd, append(words, args...))
		},
	}
}

func newInstalledShellCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shell [COMMAND...]",
		Short: "Open a root shell on the appliance, or run a command there",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"bash", "--login"}
			}
			return becomeInstalled(cmd, args)
		},
	}
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// becomeInstalled becomes a command in the appliance, so that its exit code and its terminal are the command's own.
func becomeInstalled(cmd *cobra.Command, words []string) error {
	if os.Geteuid() != 0 {
		return errors.New("needs root to enter the appliance: sudo firstlight installed")
	}
	inside, err := newInstallation(io.Discard).Command(cmd.Context(), words...)
	if err != nil {
		return err
	}

	inside.Env = append(inside.Env, "TERM="+os.Getenv("TERM"))
	return container.Become(inside)
}

// newInstalledRunCommand is the process of the unit.
func newInstalledRunCommand() *cobra.Command {
	return &cobra.Command{
		Use: "run", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("run appliance: %w", err)
			}

			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			return install.Supervise(cmd.Context(), append([]string{program}, installedFirstProcessWords...), log)
		},
	}
}

// installedFirstProcessWords is the command line by which container.FirstProcess is reached.
var installedFirstProcessWords = []string{"installed", "first-process"}

// newInstalledFirstProcessCommand becomes the appliance's systemd; the process of the unit starts it.
func newInstalledFirstProcessCommand() *cobra.Command {
	return &cobra.Command{
		Use: "first-process STAGE FILE", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			return container.FirstProcess(installedFirstProcessWords, args[0], args[1])
		},
	}
}

// newInstalledGiveBackCommand is what the unit runs when its process has ended.
func newInstalledGiveBackCommand() *cobra.Command {
	return &cobra.Command{
		Use: "give-back", Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return install.GiveBack() },
	}
}
