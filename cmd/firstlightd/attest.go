package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/attestation"
	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/daemon/appliance/tpm"
)

func newAttestCommand() *cobra.Command {
	var nonce string
	cmd := &cobra.Command{
		Use:   "attest --nonce HEX",
		Short: "Have the TPM sign what this machine booted, for whoever asks with a nonce",
		Long: fmt.Sprintf(`Have the TPM 2.0 sign what firmware and boot loader measured of this boot, and print that with the firmware's log, as
JSON. firstlight attest on a workstation asks for it and checks it; HEX is the asker's nonce, %d to %d random bytes.`,
			attestation.MinNonce, attestation.MaxNonce),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked, err := hex.DecodeString(nonce)
			if err != nil || len(asked) < attestation.MinNonce || len(asked) > attestation.MaxNonce {
				return commandline.NewUsageError(fmt.Errorf("--nonce %q: give %d to %d bytes as hexadecimal digits, as "+
					"`openssl rand -hex 32` prints them", nonce, attestation.MinNonce, attestation.MaxNonce))
			}
			if os.Getuid() != 0 {
				return errors.New("attest: this needs root on the appliance")
			}

			t, err := tpm.Open(cmd.Context())
			if err != nil {
				return fmt.Errorf("no TPM: %w; what this machine booted cannot be proven", err)
			}
			defer t.Close()

			a, err := tpm.Attest(t, asked)
			if err != nil {
				return err
			}
			a.Log, err = os.ReadFile(tpm.EventLog)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("read the firmware's event log: %w", err)
			}
			line, err := os.ReadFile("/proc/cmdline")
			if err != nil {
				return fmt.Errorf("read the kernel's command line: %w", err)
			}
			a.CommandLine = strings.TrimSuffix(string(line), "\n")
			return commandline.WriteJSON(cmd.OutOrStdout(), a)
		},
	}
	cmd.Flags().StringVar(&nonce, "nonce", "", "what the answer is for, as hexadecimal digits")
	if err := cmd.MarkFlagRequired("nonce"); err != nil {
		panic(err) // there is no such flag
	}
	return cmd
}
