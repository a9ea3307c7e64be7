package main

import (
	"bufio"
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/api"
	"firstlight.dev/firstlight/daemon/metal/bmctrust"
)

func newBMCCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bmc",
		Short: "Say which BMCs may be told their passwords",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBMCTrustCommand())
	return cmd
}

func newBMCTrustCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "trust NODE [SHA256]",
		Short: "Accept the new certificate of a node's BMC",
		Long: `Accept the certificate that the BMC of a node shows in place of the one that is pinned.

A BMC whose certificate changed is told no password until someone says that it is still that BMC: it was replaced, or
somebody gave it a new certificate. Compare the fingerprint with what the BMC's own web page or console shows; with
SHA256 only that certificate is accepted. Without it the certificate is printed, and a person at a terminal is asked.`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completeNames(&socket, listNodes),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, node := api.Client{Socket: socket}, args[0]
			fingerprint := ""
			if len(args) > 1 {
				fingerprint = args[1]
			} else {
				shown, err := client.BMCCertificate(cmd.Context(), node)
				if err != nil {
					return err
				}
				if err := confirmCertificate(cmd.InOrStdin(), cmd.OutOrStdout(), node, shown); err != nil {
					return err
				}
				fingerprint = shown.SHA256 // and no other that was seen since
			}

			t, err := client.TrustBMC(cmd.Context(), node, fingerprint)
			if err != nil {
				return err
			}

			fmt.Fprintf(cmd.OutOrStdout(), "the BMC of %s is trusted with sha256 %s, before %s\n", node, t.Now,
				cmp.Or(t.Before, "not readable"))
			return nil
		},
	}
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	return cmd
}

// trustWord is what a person types who accepts a certificate.
const trustWord = "trust"

// confirmCertificate prints what a BMC shows, and asks for trustWord where a person can answer.
func confirmCertificate(in io.Reader, out io.Writer, node string, shown status.BMCCertificate) error {
	withDigest := fmt.Sprintf("firstlightd bmc trust %s %s", node, shown.SHA256)
	var der []byte
	if block, _ := pem.Decode([]byte(shown.Certificate)); block != nil {
		der = block.Bytes
	}
	c, err := x509.ParseCertificate(der)
	if err != nil || bmctrust.Fingerprint(c) != shown.SHA256 {
		return fmt.Errorf("the record of the certificate that the BMC of %s shows is damaged; if it is that BMC, and its own "+
			"web page or console shows this sha256, run: %s", node, withDigest)
	}

	// Whoever answers in place of the BMC chose these names: they are no control sequences of a terminal.
	fmt.Fprintf(out, `The BMC of %s shows another certificate than the one that is pinned:
seen at  %s, first at %s
subject  %+q
issuer   %+q
valid    %s to %s
sha256   %s
pinned   %s
Whoever has its key will be told the BMC's password. Compare the sha256 with what the BMC's own web page or console shows.
`, node, shown.Endpoint, shown.Seen.UTC().Format("2006-01-02 15:04:05 UTC"), c.Subject.String(), c.Issuer.String(),
		c.NotBefore.UTC().Format(time.DateOnly), c.NotAfter.UTC().Format(time.DateOnly), shown.SHA256,
		cmp.Or(shown.Pinned, "not readable"))
	if !isTerminal(in) {
		return fmt.Errorf("nothing was accepted: this is no terminal, where a person could be asked; if it is that BMC, run: %s",
			withDigest)
	}

	fmt.Fprintf(out, "Type %s to accept it: ", trustWord)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read answer: %w", err)
	}
	if strings.TrimSpace(answer) != trustWord {
		return errors.New("nothing was accepted")
	}
	return nil
}
