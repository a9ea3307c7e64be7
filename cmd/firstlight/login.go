package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/daemon/appliance/workstation"
	"firstlight.dev/firstlight/daemon/engine/remote"
)

func newLoginCommand() *cobra.Command {
	var identity string
	cmd := &cobra.Command{
		Use:   "login HOST",
		Short: "Log in to an appliance by SSH, to use its commands and its API from here",
		Long: `Log in to an appliance by SSH, as root, with a key that its site.yaml names in access.sshKeys. Its host key is checked
against ~/.ssh/known_hosts, or believed once. Afterwards firstlight status, why and others run on that appliance, and the
context firstlight-HOST of your kubeconfig is for its API while firstlight proxy runs. The certificate for that is good
for twelve hours, and replaced when kubectl needs one after that. Its key is made here, and stays here.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := workstation.CheckHost(args[0]); err != nil {
				return commandline.NewUsageError(err)
			}
			return login(cmd, args[0], identity)
		},
	}
	cmd.Flags().StringVarP(
		&identity, "identity", "i", "", "file of the private SSH key (default those of the agent and of ~/.ssh)",
	)
	return cmd
}

// login stores an appliance as soon as it has let in: its status can be asked for before it has an API.
func login(cmd *cobra.Command, host, identity string) error {
	store, err := workstation.UserStore()
	if err != nil {
		return err
	}

	a, err := store.Prepare(host, identity)
	if err != nil {
		return err
	}

	c, err := store.Connect(cmd.Context(), a, func(fingerprint string) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s shows the host key %s, which is believed from now on\n", host, fingerprint)
	})
	if err != nil {
		return err
	}
	defer c.Close()

	if err := c.Run(cmd.Context(), remote.Streams{Err: cmd.ErrOrStderr()}, "--version"); err != nil {
		return err
	}
	if err := store.Save(a); err != nil {
		return err
	}

	access, err := store.Certify(cmd.Context(), c)
	if err != nil {
		return fmt.Errorf("%w; firstlight status and why work already, and for kubectl log in again then", err)
	}

	plugin, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the firstlight command, for kubectl to call: %w", err)
	}

	file, err := store.SaveContext(a, access, plugin)
	if err != nil {
		return err
	}

	fmt.Fprintf(
		cmd.OutOrStdout(), "Logged in to %s. For kubectl run firstlight proxy; its context is %s in %s\n", host,
		a.Context(), file,
	)
	return nil
}

func newLogoutCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "logout HOST",
		Short: "Remove what login stored of an appliance: host key, certificate, context of your kubeconfig",
		Args:  cobra.ExactArgs(1),

		ValidArgsFunction: completeHosts,
		RunE: func(cmd *cobra.Command, args []string) error {
			host := args[0]
			if err := workstation.CheckHost(host); err != nil {
				return commandline.NewUsageError(err)
			}

			store, err := workstation.UserStore()
			if err != nil {
				return err
			}

			contextErr := workstation.RemoveContext(workstation.Appliance{Host: host})
			removed, err := store.Remove(host)
			switch {
			case errors.Join(contextErr, err) != nil:
				return errors.Join(contextErr, err)
			case !removed:
				return fmt.Errorf("%s was not logged in to; those that were: %s", host, strings.Join(store.Hosts(), " "))
			}

			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Nothing of %s is stored here any more\n", host)
			return err
		},
	}
}

// newCredentialCommand is the plugin that kubeconfigs of login name.
func newCredentialCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "credential HOST",
		Short:  "Print the certificate for an appliance's API, which kubectl asks for",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := workstation.UserStore()
			if err != nil {
				return err
			}

			a, err := store.Find(args[0])
			if err != nil {
				return err
			}
			if err := workstation.CheckProxy(cmd.Context(), a); err != nil {
				return err
			}

			credential, err := store.Credential(cmd.Context(), a)
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(credential)
		},
	}
}

// connect connects to an appliance that was logged in to.
func connect(ctx context.Context, host string) (workstation.Store, *workstation.Connection, error) {
	store, err := workstation.UserStore()
	if err != nil {
		return store, nil, err
	}

	a, err := store.Find(host)
	if err != nil {
		return store, nil, err
	}

	c, err := store.Connect(ctx, a, nil)
	return store, c, err
}

func bindHost(cmd *cobra.Command, host *string) {
	cmd.Flags().StringVar(host, "host", "", "the appliance (default the one that was logged in to last)")
	if err := cmd.RegisterFlagCompletionFunc("host", completeHosts); err != nil {
		panic(err) // there is no such flag, or it was given values before
	}
}

// completeHosts lets shells complete the appliances that were logged in to.
func completeHosts(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	store, err := workstation.UserStore()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return store.Hosts(), cobra.ShellCompDirectiveNoFileComp
}
