package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/commandline"
)

// buildVersion is what `firstlight version` shows.
type buildVersion struct {
	Version string `json:"version"`
	assets.Revision
	Go string `json:"go"` // version that compiled it
}

func newVersionCommand() *cobra.Command {
	var output commandline.Format
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, and the commit it was built from",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := readBuildVersion()
			if output == commandline.JSON {
				return commandline.WriteJSON(cmd.OutOrStdout(), v)
			}

			_, err := fmt.Fprint(cmd.OutOrStdout(), v.text())
			return err
		},
	}
	output.Bind(cmd)
	return cmd
}

// readBuildVersion reads what the go command wrote into this program.
func readBuildVersion() buildVersion {
	var r assets.Revision
	if info, ok := debug.ReadBuildInfo(); ok {
		r = assets.RevisionOf(info)
	}
	return buildVersion{Version: r.Version(), Revision: r, Go: runtime.Version()}
}

// text has the version alone on its first line.
func (v buildVersion) text() string {
	date := ""
	if !v.Time.IsZero() {
		date = " of " + v.Time.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("%s\ncommit %s%s\n%s\n", v.Version, cmp.Or(v.Commit, "unknown"), date, v.Go)
}
