package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/signature"
	"firstlight.dev/firstlight/image/owner"
)

func newKeysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Make recovery keys, which open away copies, and keys that sign images",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newKeysNewCommand())
	return cmd
}

func newKeysNewCommand() *cobra.Command {
	var signing, secureBoot bool
	cmd := &cobra.Command{
		Use:   "new FILE",
		Short: "Make a key in a new file, and print its public half for site.yaml",
		Long: `Make a recovery key in a new file, and print its public half for awayCopy.recipients of site.yaml. Whoever has the file
and an away copy has the rack; who has lost it cannot open the copies. Keep it away from both.

--signing makes a signing key instead, as minisign has them, and FILE.pub with its public half, which is printed for
updates.keys or images.keys of site.yaml. Whoever has FILE decides what the appliance or its nodes run; who has lost it
makes another one and changes site.yaml. Keep it away from the stick. To protect it with a password: minisign -C -s FILE.

--secure-boot makes the keys of an owner for UEFI Secure Boot in a new directory FILE: PK, KEK and db, each with its
certificate (.crt and, for the firmware's setup, .cer) and what is written to the firmware's variable (.auth). firstlight
sign --secure-boot signs images with db.key. Whoever has db.key decides what machines start that trust these keys; who has
lost PK.key can change their keys only in the firmware's setup.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			makeKey := makeRecoveryKey
			switch {
			case signing:
				makeKey = makeSigningKey
			case secureBoot:
				makeKey = makeOwnerKeys
			}
			public, err := makeKey(args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), public)
			return err
		},
	}
	cmd.Flags().BoolVar(&signing, "signing", false, "a key that signs images, not one that opens away copies")
	cmd.Flags().BoolVar(&secureBoot, "secure-boot", false, "keys by which firmware knows what the owner signed")
	cmd.MarkFlagsMutuallyExclusive("signing", "secure-boot")
	return cmd
}

// makeRecoveryKey makes one in a new file and returns its public half.
func makeRecoveryKey(name string) (public string, err error) {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		return "", fmt.Errorf("make recovery key: %w", err)
	}

	text := fmt.Appendf(nil, "# recovery key of a Firstlight appliance; its public half: %s\n%s\n", key.Recipient(), key)
	return key.Recipient().String(), writeKey("recovery key", name, text, 0o600)
}

// makeSigningKey makes one in a new file, with its public half in NAME.pub, which it returns.
func makeSigningKey(name string) (public string, err error) {
	key, err := signature.NewPrivateKey()
	if err != nil {
		return "", err
	}
	text, err := key.File()
	if err != nil {
		return "", err
	}

	// Cut in between there is a key that no one has used.
	if err := writeKey("signing key", name, text, 0o600); err != nil {
		return "", err
	}
	return key.Public().String(), writeKey("public half of the signing key", name+".pub", key.Public().File(), 0o644)
}

// makeOwnerKeys makes the keys for Secure Boot in a new directory, and returns what to do with them.
func makeOwnerKeys(dir string) (next string, err error) {
	if err := owner.MakeKeys(dir, time.Now()); err != nil {
		return "", err
	}
	return "Next: firstlight sign --secure-boot " + dir + " firstlight.img --out signed.img", nil
}

// writeKey writes a key, what for, to a new file; a file that is there is left alone, since it may be the only one
// that opens something.
func writeKey(what, name string, text []byte, perm os.FileMode) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm)
	if err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}

	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s %s: %w", what, name, err)
	}

	return nil
}
