package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/daemon/engine/remote"
)

// applianceCommands are those of firstlightd that are run from here.
var applianceCommands = []struct{ name, short string }{
	{"status", "Show how an appliance is: its stages, addresses and what it waits for"},
	{"why", "Say what each node and cluster of an appliance does, what it waits for and what to do"},
	{"reload", "Have an appliance read its site again and check every stage"},
	{"kubeconfig", "Print the kubeconfig of a workload cluster of an appliance"},
}

func newApplianceCommands() (all []*cobra.Command) {
	for _, c := range applianceCommands {
		all = append(all, &cobra.Command{
			Use:   c.name + " [--host HOST] [ARGUMENTS...]",
			Short: c.short,
			Long: fmt.Sprintf(`%s.

This runs firstlightd %s on the appliance of the last firstlight login, or on HOST, and ends with its exit code.
All words behind --host are its own; firstlight %s -- --help lists those that it knows.`,
				c.short, c.name, c.name),
			DisableFlagParsing:    true,
			DisableFlagsInUseLine: true,
			RunE: func(cmd *cobra.Command, args []string) error {
				if len(args) > 0 && (args[0] == "-h" || args[0] == "--help") {
					return cmd.Help()
				}

				host, args, err := cutHost(args)
				if err != nil {
					return commandline.NewUsageError(err)
				}
				return runOnAppliance(cmd, host, append([]string{c.name}, args...))
			},
		})
	}
	return all
}

// cutHost takes --host, and then --, from the front of arguments that are otherwise the appliance's.
func cutHost(args []string) (host string, rest []string, err error) {
	if len(args) == 0 {
		return "", nil, nil
	}

	switch value, joined := strings.CutPrefix(args[0], "--host="); {
	case joined:
		host, args = value, args[1:]
	case args[0] == "--host" && len(args) == 1:
		return "", nil, errors.New("flag needs an argument: --host")
	case args[0] == "--host":
		host, args = args[1], args[2:]
	}
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	return host, args, nil
}

func runOnAppliance(cmd *cobra.Command, host string, words []string) error {
	_, c, err := connect(cmd.Context(), host)
	if err != nil {
		return err
	}
	defer c.Close()

	return c.Run(cmd.Context(), remote.Streams{Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()}, words...)
}
