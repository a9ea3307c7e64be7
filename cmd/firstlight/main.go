// Command firstlight is the workstation side of the product: it resolves, builds,
// verifies, writes and boots the stick, runs the virtual rack, and operates appliances
// from afar.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string) int { return commandline.Run(ctx, newRootCommand(), args) }

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
		newTryCommand(),
		newBuildCommand(),
		newLockCommand(),
		newPlanCommand(),
		newPruneCommand(),
		newReleaseCommand(),
		newFlashCommand(),
		newVerifyCommand(),
		newKeysCommand(),
		newSignCommand(),
		newVersionCommand(),
	)
	commandline.AddGroup(
		root,
		"The appliance on this machine",
		newInstallCommand(),
		newInstalledCommand(),
		newUninstallCommand(),
	)
	commandline.AddGroup(root, "The appliance on a Kubernetes that is there", newGuestCommand())
	commandline.AddGroup(
		root,
		"An appliance that runs",
		newLoginCommand(),
		newLogoutCommand(),
		newProxyCommand(),
		newCredentialCommand(),
		newBundleCommand(),
		newAttestCommand(),
		newArtifactCommand(),
		newPackCommand(),
		newDevCommand(),
	)
	commandline.AddGroup(root, "Commands of the appliance itself, by SSH", newApplianceCommands()...)
	return commandline.MarkUsageErrors(root)
}
