package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/signature"
	"firstlight.dev/firstlight/image/media"
	"firstlight.dev/firstlight/image/owner"
)

func newSignCommand() *cobra.Command {
	var keyFile, keysDir, out string
	cmd := &cobra.Command{
		Use:   "sign FILE... {--key KEY | --secure-boot DIR --out NEW}",
		Short: "Sign images, so that appliances know who made them",
		Long: `Sign images of the stick (.img, .img.zst), or any other files such as OS images of nodes, with a key of firstlight keys
new --signing or of minisign. The signature of FILE is FILE.minisig; keep the two together. minisign -Vm FILE -p KEY.pub
checks it as well.

It says the file's sha256, and of an image of the stick also which kernel, initramfs and root the image starts. So it
holds for what firstlight flash writes from the image, too.

--secure-boot signs what an image starts, for machines whose firmware trusts the keys in DIR (firstlight keys new
--secure-boot) and no others: GRUB with its configuration, kernel, initramfs and the root's hash. The signed image is
another one, NEW, with its compressed form and its block map. By BIOS it starts as before. Sign it with --key after that.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if keysDir != "" {
				return signForSecureBoot(cmd, keysDir, out, args)
			}
			key, err := readSigningKey(keyFile, cmd)
			if err != nil {
				return err
			}
			for _, path := range args {
				if err := signFile(cmd.Context(), key, path); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: signed by the key %s\n", path+signature.Suffix, key.Public().ID())
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&keyFile, "key", "", "file with the signing key")
	cmd.Flags().StringVar(&keysDir, "secure-boot", "", "directory with the owner's keys")
	cmd.Flags().StringVar(&out, "out", "", "the signed image, a new file")
	cmd.MarkFlagsOneRequired("key", "secure-boot")
	cmd.MarkFlagsMutuallyExclusive("key", "secure-boot")
	cmd.MarkFlagsRequiredTogether("secure-boot", "out")
	return cmd
}

// signForSecureBoot writes another image, signed for firmware that trusts the owner's keys.
func signForSecureBoot(cmd *cobra.Command, keysDir, out string, args []string) error {
	if len(args) != 1 {
		return errors.New("sign: --secure-boot takes one image, since --out is one")
	}
	keys, err := owner.ReadKeys(keysDir)
	if err != nil {
		return err
	}

	if err := owner.SignImage(cmd.Context(), args[0], out, keys); err != nil {
		return err
	}
	if _, err := media.Publish(cmd.Context(), out, nil); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: signed by %s. Next: firstlight verify %s; firstlight flash %s /dev/DEVICE\n",
		out, keys.DB.Certificate.Subject.CommonName, out, out)
	return nil
}

// readSigningKey reads a key, and asks for its password on the terminal if it has one.
func readSigningKey(path string, cmd *cobra.Command) (signature.PrivateKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return signature.PrivateKey{}, fmt.Errorf("read signing key: %w", err)
	}

	key, err := signature.ParsePrivateKey(text, func() (string, error) {
		f, ok := cmd.InOrStdin().(*os.File)
		if !ok || !isTerminal(f) {
			return "", errors.New("it has a password, which is asked for on a terminal")
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "Password of %s: ", path)
		word, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(cmd.ErrOrStderr())
		return string(word), err
	})
	if err != nil {
		return key, fmt.Errorf("read signing key %s: %w", path, err)
	}
	return key, nil
}

// signFile writes the signature of a file next to it, whole or not at all.
func signFile(ctx context.Context, key signature.PrivateKey, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	defer f.Close()

	slot, err := media.SlotDigest(ctx, path)
	if err != nil {
		return fmt.Errorf("sign %s: %w", path, err)
	}
	s, err := key.Sign(ctx, f, path, slot)
	if err != nil {
		return err
	}
	return atomicfile.Write(path+signature.Suffix, []byte(s.Text()), 0o644)
}

// readTrust reads the public halves of signing keys.
func readTrust(paths []string) (signature.Keys, error) {
	var keys signature.Keys
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("read key: %w", err)
		}
		text, err := io.ReadAll(io.LimitReader(f, signature.MaxBytes))
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("read key: %w", err)
		}

		key, err := signature.ParsePublicKey(string(text))
		if err != nil {
			return nil, fmt.Errorf("read key %s: %w", path, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// openSigned opens an image that one of the keys has signed, and returns that key; what was checked is what is read. If
// none has, the error ends with outcome.
func openSigned(
	ctx context.Context, trust signature.Keys, path, outcome string,
) (*media.Image, signature.PublicKey, error) {
	refused := func(err error) error { return fmt.Errorf("refused: %s: %w; %s", path, err, outcome) }
	s, err := signature.ReadFile(path + signature.Suffix)
	if err != nil {
		return nil, "", refused(err)
	}
	_, key, err := trust.CheckStatement(s)
	if err != nil {
		return nil, "", refused(err)
	}

	image, err := media.OpenChecked(ctx, path, func(r io.Reader) error {
		if _, _, err := trust.CheckContent(ctx, r, s); err != nil {
			return refused(err)
		}
		return nil
	})
	return image, key, err
}
