// Command firstlight is the workstation side of the product: it resolves, builds,
// verifies, writes and boots the stick, runs the virtual rack, and operates appliances
// from afar.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/daemon/appliance/workstation"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

// run executes one command line. Exit codes: 0 done, 1 refused or failed (one line says why), 2 usage; a command that
// ran on an appliance, or with its API, has its own.
func run(ctx context.Context, args []string) int {
	root := newRootCommand()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}

	var exit *workstation.ExitError
	if errors.As(err, &exit) { // it has said why
		return exit.Code
	}

	fmt.Fprintf(os.Stderr, "%s: %v\n", cmd.CommandPath(), err)
	var usage commandline.UsageError
	if errors.As(err, &usage) {
		return 2
	}

	return 1
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "firstlight",
		Short: "Build, check, write and boot the Firstlight stick, and operate an appliance from afar",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	commandline.AddGroup(
		root,
		"The stick and its parts",
		newSiteCommand(),
		newBootCommand(),
		newLabCommand(),
		newBuildCommand(),
		newLockCommand(),
		newPlanCommand(),
		newPruneCommand(),
		newReleaseCommand(),
		newFlashCommand(),
		newVerifyCommand(),
		newKeysCommand(),
		newVersionCommand(),
	)
	commandline.AddGroup(
		root,
		"An appliance that runs",
		newLoginCommand(),
		newLogoutCommand(),
		newProxyCommand(),
		newCredentialCommand(),
		newBundleCommand(),
		newArtifactCommand(),
		newPackCommand(),
	)
	commandline.AddGroup(root, "Commands of the appliance itself, by SSH", newApplianceCommands()...)
	return commandline.MarkUsageErrors(root)
}
