package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/daemon/appliance/kube"
	"firstlight.dev/firstlight/daemon/appliance/vault"
)

// auditFlags are the command line of `firstlightd audit`.
type auditFlags struct {
	since  time.Duration
	user   string
	all    bool
	output commandline.Format
	files  []string // a test has others
}

func newAuditCommand() *cobra.Command {
	f := auditFlags{files: audit.Files()}
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List who changed what by the Kubernetes API, the upload API and the page, and who read Secrets",
		Long: `List who changed what by the appliance's Kubernetes API, by the upload API, S3 included, and by the page, and who
read Secrets, the oldest first. What the appliance's own parts did is left out; --all has it, too. What was written or
read is in no log. Logs are root's, and keep a bounded past: 32 MiB, and twice 16 MiB, 90 days at most. The last half
minute may be missing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.OutOrStdout(), time.Now()) },
	}
	f.output.Bind(cmd)
	cmd.Flags().DurationVar(&f.since, "since", 24*time.Hour, "how far back, such as 90m or 168h")
	cmd.Flags().StringVar(&f.user, "user", "", "only requests of users whose name, or whom they acted for, has this in it")
	cmd.Flags().BoolVar(&f.all, "all", false, "also what the appliance's own parts did")
	return cmd
}

func (f auditFlags) run(w io.Writer, now time.Time) error {
	entries, err := audit.Read(f.files, now.Add(-f.since))
	entries = slices.DeleteFunc(entries, func(e audit.Entry) bool {
		return !strings.Contains(e.User+" "+e.As, f.user) || !f.all && isOwnRequest(e)
	})
	if f.output == commandline.JSON {
		return cmp.Or(commandline.WriteJSON(w, entries), err)
	}

	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TIME\tWHO\tPROGRAM\tFROM\tDID\tTO\tRESULT")
	for _, e := range entries {
		who, result := e.User, fmt.Sprint(e.Code)
		if e.As != "" {
			who += " as " + e.As
		}
		if e.Code == 0 {
			result = "under way"
		}
		row := []string{
			e.Time.UTC().Format(time.DateTime), who, e.Program, e.From, e.Verb, e.Object,
			strings.TrimSpace(result + " " + e.Reason),
		}
		fmt.Fprintln(t, printable(strings.Join(row, "\t")))
	}
	return cmp.Or(t.Flush(), err)
}

// isOwnRequest reports whether a part of the appliance asked. What the daemon does for a person is that person's. An entry
// of an earlier version has the log-in of root, and the daemon is told from root by what the program says of itself;
// commands that root runs call themselves firstlightd-COMMAND.
func isOwnRequest(e audit.Entry) bool {
	if account, ok := strings.CutPrefix(e.User, "system:serviceaccount:"); ok {
		namespace, _, _ := strings.Cut(account, ":")
		return slices.Contains(vault.Namespaces(), namespace)
	}
	isDaemon := e.User == kube.DaemonUser || e.User == kube.AdminUser && e.Program == "firstlightd"
	return isDaemon && e.As == ""
}

// printable hides what a screen would obey: clients choose some of the words.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
