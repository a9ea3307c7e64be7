package main

import (
	"errors"
	"fmt"
	"os"

	"filippo.io/age"
	"github.com/spf13/cobra"
)

func newKeysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Make recovery keys, which open away copies",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newKeysNewCommand())
	return cmd
}

func newKeysNewCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "new FILE",
		Short: "Make a recovery key in a new file, and print its public half for site.yaml",
		Long: `Make a recovery key in a new file, and print its public half for awayCopy.recipients of site.yaml. Whoever has the file
and an away copy has the rack; who has lost it cannot open the copies. Keep it away from both.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := age.GenerateX25519Identity()
			if err != nil {
				return fmt.Errorf("make recovery key: %w", err)
			}
			if err := writeKey(args[0], key); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), key.Recipient())
			return err
		},
	}
}

// writeKey writes a recovery key for its owner's eyes; a file that is there is left alone, since it may be the only one
// that opens something.
func writeKey(name string, key *age.X25519Identity) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write recovery key: %w", err)
	}

	_, err = fmt.Fprintf(f, "# recovery key of a Firstlight appliance; its public half: %s\n%s\n", key.Recipient(), key)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write recovery key %s: %w", name, err)
	}

	return nil
}
