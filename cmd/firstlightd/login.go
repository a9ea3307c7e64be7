package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/api"
	"firstlight.dev/firstlight/daemon/appliance/console"
	"firstlight.dev/firstlight/daemon/page"
)

func newLoginCommand() *cobra.Command {
	var output commandline.Format
	var socket, role, user string
	var qr bool
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Print a code by which one browser logs in to the appliance's page",
		Long: `Print a code by which one browser logs in to the appliance's page.

A viewer sees all pages. An operator also does what can be undone, such as to switch nodes on and off or to reload the
site. An owner also does what loses data or gives a secret away. Whoever uses the code is USER@HOST in the audit log.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			user = cmp.Or(user, defaultUser(os.Getenv("SSH_CONNECTION")))
			login, err := api.Client{Socket: socket}.Login(cmd.Context(), role, user)
			if err != nil {
				return err
			}
			if output == commandline.JSON {
				return commandline.WriteJSON(cmd.OutOrStdout(), login)
			}

			out := cmd.OutOrStdout()
			writeLogin(out, login)
			if f, ok := out.(*os.File); qr || ok && term.IsTerminal(int(f.Fd())) {
				writeQR(out, login)
			}
			return nil
		},
	}
	output.Bind(cmd)
	cmd.Flags().StringVar(&role, "role", string(page.Viewer), "what the browser may do: viewer, operator or owner")
	commandline.CompleteFlag(cmd, "role", string(page.Viewer), string(page.Operator), string(page.Owner))
	cmd.Flags().StringVar(&user, "user", "", "who uses it, as USER@HOST (default root at the address of your SSH client)")
	cmd.Flags().BoolVar(&qr, "qr", false, "draw the link as a QR code, for a phone; a terminal gets it without asking")
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	return cmd
}

// defaultUser is root at the address that an SSH connection comes from (sshd(8), SSH_CONNECTION), or at the appliance's
// own screen. The colons of an address are no part of a name.
func defaultUser(connection string) string {
	address, _, _ := strings.Cut(connection, " ")
	return "root@" + cmp.Or(strings.NewReplacer(":", "-", "%", "-").Replace(address), "console")
}

// writeLogin says where a code is used, for how long, and how the page is told from another one.
func writeLogin(w io.Writer, l status.Login) {
	for _, at := range l.URLs {
		fmt.Fprintf(w, "Open %s\nor open %s and type the code %s\n", page.LoginURL(at, l.Code), at, l.Code)
	}

	fmt.Fprintf(w, "It can be used once, until %s. %s\n", l.Expires.Format("15:04:05 MST"), describeRole(l))
	fmt.Fprintf(
		w, "Your browser will not know the certificate. Compare its SHA-256 fingerprint before you continue:\n%s\n",
		l.Fingerprint,
	)
}

// describeRole says what whoever uses a code can do.
func describeRole(l status.Login) string {
	if page.Role(l.Role) == page.Viewer {
		return "Whoever uses it sees the page and can change nothing there."
	}
	return fmt.Sprintf("Whoever uses it is %s there, and %s in the audit log.", l.Role, l.User)
}

// writeQR draws the first link, in white on black whatever the terminal's own colours are: readers want light around it.
func writeQR(w io.Writer, l status.Login) {
	if len(l.URLs) == 0 {
		return
	}
	for _, line := range console.RenderQR(page.LoginURL(l.URLs[0], l.Code)) {
		fmt.Fprintf(w, "\x1b[37;40m%s\x1b[0m\n", line)
	}
}
