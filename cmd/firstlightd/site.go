package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon"
	"firstlight.dev/firstlight/daemon/appliance/api"
	"firstlight.dev/firstlight/daemon/appliance/sitedocument"
	"firstlight.dev/firstlight/daemon/appliance/vault"
)

func newSiteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "site",
		Short: "Show or replace site.yaml on the stick",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSiteShowCommand(), newSiteReplaceCommand())
	return cmd
}

func newSiteShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Print site.yaml as it is on the stick, with its passwords",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, path, err := daemon.NewSiteStore().Read()
			if err != nil {
				return err
			}
			if path == "" {
				return errors.New("this appliance has no site.yaml; `firstlightd site replace -` reads one")
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
}

func newSiteReplaceCommand() *cobra.Command {
	var socket, was string
	cmd := &cobra.Command{
		Use:   "replace FILE|-",
		Short: "Write another site.yaml to the stick and have it read",
		Long: `Check a site document, write it to the stick, and have the daemon read it. A document with a mistake
changes nothing. From a workstation, with the editor that is there:

  firstlight site edit

or by hand:

  ssh root@APPLIANCE firstlightd site show >site.yaml
  ssh root@APPLIANCE firstlightd site replace - <site.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := readDocument(cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			if err := replaceSite(cmd.ErrOrStderr(), text, was, daemon.NewSiteStore()); err != nil {
				return err
			}
			if err := addToHistory(text); err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), err)
			}

			if err := (api.Client{Socket: socket}).Reload(cmd.Context()); err != nil {
				return fmt.Errorf("site.yaml is replaced, and read at the next start: %w", err)
			}

			_, err = fmt.Fprintln(cmd.OutOrStdout(), "site.yaml is replaced and in effect")
			return err
		},
	}
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	cmd.Flags().StringVar(&was, "was", "", "SHA-256 of the only document that is replaced (default any)")
	return cmd
}

// readDocument reads a file, or stdin for "-".
func readDocument(stdin io.Reader, name string) ([]byte, error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("read site: %w", err)
		}
		defer f.Close()
		stdin = f
	}

	text, err := io.ReadAll(io.LimitReader(stdin, site.MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read site %s: %w", name, err)
	}
	if len(text) == 0 {
		return nil, fmt.Errorf("read site %s: it is empty, and nothing is changed", name)
	}

	return text, nil
}

// replaceSite writes a document that has no mistakes; those of another one go to complaints, a line each. was is the
// digest of the only document that is replaced; "": any is.
func replaceSite(complaints io.Writer, text []byte, was string, to sitedocument.Store) error {
	problems, err := to.Replace(text, was)
	if len(problems) > 0 {
		fmt.Fprintln(complaints, problems)
		return errors.New("site.yaml on the stick is as it was")
	}
	return err
}

// addToHistory writes down who applied a document, once DATA has the place for it.
func addToHistory(text []byte) error {
	if _, err := os.Stat(vault.SecretDir); err != nil {
		return nil // the daemon adds it when it is up
	}
	return daemon.NewSiteHistory().Add(text, defaultUser(os.Getenv("SSH_CONNECTION")), time.Now())
}
