package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
)

func newProxyCommand() *cobra.Command {
	var host string
	cmd := &cobra.Command{
		Use:   "proxy [COMMAND...]",
		Short: "Forward the API of an appliance through SSH: until Ctrl-C, or while a command runs",
		Long: `Forward the API of an appliance to loopback through SSH, because no network reaches it. Meanwhile kubectl, clusterctl
and others work with the context that firstlight login made. With a command, it runs that one with KUBECONFIG set:

  firstlight proxy kubectl get nodes`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return proxy(cmd, host, args) },
	}
	cmd.Flags().SetInterspersed(false)
	bindHost(cmd, &host)
	return cmd
}

func proxy(cmd *cobra.Command, host string, command []string) error {
	store, c, err := connect(cmd.Context(), host)
	if err != nil {
		return err
	}
	defer c.Close()

	access, err := store.Access(c.Appliance)
	if err != nil {
		return err
	}

	l, err := c.Listen()
	if err != nil {
		return err
	}
	if len(command) > 0 {
		go func() { _ = c.Forward(cmd.Context(), l, access) }() // the command says what it cannot reach
		return runWith(cmd, store.Kubeconfig(c.Appliance), command)
	}

	fmt.Fprintf(
		cmd.ErrOrStderr(), "The API of %s is at https://%s until Ctrl-C; context %s\n", c.Host, l.Addr(), c.Context(),
	)
	return c.Forward(cmd.Context(), l, access)
}

// runWith runs a command of this computer's with a kubeconfig. Its exit code is the whole command's.
func runWith(cmd *cobra.Command, kubeconfig string, command []string) error {
	run := exec.CommandContext(context.WithoutCancel(cmd.Context()), command[0], command[1:]...) // Ctrl-C reaches it, too
	run.Stdin, run.Stdout, run.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	run.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	err := run.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return &commandline.ExitError{Program: command[0], Code: exit.ExitCode()}
	}
	return err
}
