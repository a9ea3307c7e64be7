// Command firstlightd is the daemon of the appliance. `firstlightd run` makes the
// appliance's facts true and then serves; the other subcommands are the managers that
// run as pods, and the tools for whoever looks inside.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/stick"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == "installer" { // as docs/kud.md has it called
		args = append([]string{"installer"}, args...)
	}

	os.Exit(run(ctx, args))
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string) int { return commandline.Run(ctx, newRootCommand(), args) }

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:     "firstlightd",
		Short:   "The daemon of the Firstlight appliance",
		Version: stick.ImageVersion(stick.BootInfoFile),
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Version}}\n" + runtime.Version() + "\n")
	commandline.AddGroup(
		root,
		"For operators",
		newStatusCommand(),
		newWhyCommand(),
		newUnknownCommand(),
		newLoginCommand(),
		newSiteCommand(),
		newSourceCommand(),
		newReloadCommand(),
		newAdoptCommand(),
		newApproveCommand(),
		newEraseCommand(),
		newReplaceCommand(),
		newBMCCommand(),
		newConsoleCommand(),
		newCertifyCommand(),
		newKubeconfigCommand(),
		newManifestsCommand(),
		newUploaderCommand(),
		newBundleCommand(),
		newSecretsCommand(),
		newAuditCommand(),
		newRotateCommand(),
		newBackupCommand(),
		newRestoreCommand(),
		newKeyFileCommand(),
		newAttestCommand(),
		newUpdateCommand(),
		newPushCommand(),
		newDocsCommand(),
	)
	commandline.AddGroup(
		root,
		"Run by its units and pods",
		newRunCommand(),
		newStorageCommand(),
		newRegistryCommand(),
		newHoldCommand(),
		newBPACommand(),
		newKPACommand(),
		newArtifactsCommand(),
		newInstallerCommand(),
		newPXECommand(),
	)
	return commandline.MarkUsageErrors(root)
}
