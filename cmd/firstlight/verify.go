package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/image/verify"
)

func newVerifyCommand() *cobra.Command {
	var output commandline.Format
	var trust []string
	cmd := &cobra.Command{
		Use:   "verify IMAGE",
		Short: "Check an image: tables, file systems, digests, and that nothing it names is missing",
		Long: `Check an image: tables, file systems, digests, and that nothing it names is missing. --trust KEY.pub also checks that it
is signed by that key (firstlight sign): the signature is IMAGE.minisig.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, err := readTrust(trust)
			if err != nil {
				return err
			}
			report, err := verify.Run(cmd.Context(), args[0], verify.Options{Keys: keys})
			if err != nil {
				return err
			}

			if output == commandline.JSON {
				err = commandline.WriteJSON(cmd.OutOrStdout(), report)
			} else {
				err = printReport(cmd.OutOrStdout(), report)
			}

			if err == nil && len(report.Findings) > 0 {
				err = fmt.Errorf("%s: %d findings", args[0], len(report.Findings))
			}

			return err
		},
	}
	cmd.Flags().StringArrayVar(&trust, "trust", nil, "file with the public half of a key that signs images; may be repeated")
	output.Bind(cmd)
	return cmd
}

func printReport(w io.Writer, report verify.Report) error {
	for _, s := range report.Steps {
		if _, err := fmt.Fprintf(w, "%-8s %6.1f s  %s\n", s.Check, s.Time.Seconds(), s.Text); err != nil {
			return err
		}
	}

	for _, f := range report.Findings {
		if _, err := fmt.Fprintln(w, f); err != nil {
			return err
		}
	}

	if len(report.Findings) > 0 {
		return nil
	}

	_, err := fmt.Fprintf(w, "%s is sound: %d bytes, no finding\n", report.Image, report.Size)
	return err
}
