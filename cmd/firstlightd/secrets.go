package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/daemon/appliance/vault"
)

func newSecretsCommand() *cobra.Command {
	var output commandline.Format
	cmd := &cobra.Command{
		Use:   "secrets",
		Short: "List every secret of this appliance: owner, age, where it is used and how it is replaced; never a value",
		Long: `List every secret of this appliance: owner, age, where it is used, how it is replaced, and whether an away copy has it.
No file is opened, and the API is asked for names alone. -o json has their places, too.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := vault.List(cmd.Context(), "", connectDefault)
			if output == commandline.JSON {
				return commandline.WriteJSON(cmd.OutOrStdout(), list)
			}
			return writeSecrets(cmd.OutOrStdout(), list, time.Now())
		},
	}
	output.Bind(cmd)
	return cmd
}

func writeSecrets(w io.Writer, l vault.Listing, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SECRET\tN\tAGE\tAWAY\tOWNER\tUSED\tREPLACED")
	for _, s := range l.Secrets {
		if s.Count == 0 {
			continue
		}
		saved := "no"
		if s.Away {
			saved = "yes"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", s.Name, s.Count, vault.FormatAge(now.Sub(s.Since)), saved, s.Owner, s.Used, s.Rotated)
	}
	if err := t.Flush(); err != nil {
		return err
	}

	if len(l.Unlisted) > 0 {
		fmt.Fprintf(w, "\nOn no list: Secrets %s\n", strings.Join(l.Unlisted, ", "))
	}
	if l.Error != "" {
		fmt.Fprintf(w, "\n%s\n", l.Error)
	}

	return nil
}
