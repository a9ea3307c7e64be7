package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/image/lab/container"
	"firstlight.dev/firstlight/image/lab/try"
)

func newTryStatusCommand(f *tryFlags) *cobra.Command {
	var output commandline.Format
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the appliance is, and what each simulated server does",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rack, err := f.rack()
			if err != nil {
				return err
			}
			return showTryStatus(cmd, rack, output)
		},
	}
	output.Bind(cmd)
	return cmd
}

func showTryStatus(cmd *cobra.Command, rack try.Rack, output commandline.Format) error {
	servers, err := rack.Servers()
	if err != nil {
		return err
	}

	document, err := rack.Document(cmd.Context())
	if err != nil {
		return err
	}
	if output == commandline.JSON {
		return commandline.WriteJSON(cmd.OutOrStdout(), map[string]any{"appliance": document, "servers": servers})
	}

	out := cmd.OutOrStdout()
	fmt.Fprintln(out, document.Summary)
	for _, n := range document.Nodes {
		fmt.Fprintf(out, "%s: %s, its server: %s; %s\n", n.Name, n.State, servers[n.Name], n.Why)
	}

	return nil
}

func newTryWhyCommand(f *tryFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "why [NODE]",
		Short: "Run firstlightd why on the appliance: what each node does and waits for",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.runInside(cmd, append([]string{"firstlightd", "why"}, args...))
		},
	}
}

func newTryKubectlCommand(f *tryFlags) *cobra.Command {
	return newKubectlCommand(&f.dir, func(cmd *cobra.Command, args []string) error {
		return f.runInside(cmd, append([]string{"kubectl"}, args...))
	})
}

func newTryShellCommand(f *tryFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shell [COMMAND...]",
		Short: "Open a root shell on the appliance, or run a command there",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"bash", "--login"}
			}
			return f.runInside(cmd, args)
		},
	}
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// runInside becomes a command in the appliance, so that its exit code and its terminal are the command's own.
func (f *tryFlags) runInside(cmd *cobra.Command, words []string) error {
	rack, err := f.rack()
	if err != nil {
		return err
	}

	inside, err := rack.Command(cmd.Context(), words...)
	if err != nil {
		return err
	}

	inside.Env = append(inside.Env, "TERM="+os.Getenv("TERM"))
	return container.Become(inside)
}
