package main

import (
	"fmt"
	"io"
	"os"

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
	var socket string
	var qr bool
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Print a code that lets one browser see the appliance's page",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			login, err := api.Client{Socket: socket}.Login(cmd.Context())
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
	cmd.Flags().BoolVar(&qr, "qr", false, "draw the link as a QR code, for a phone; a terminal gets it without asking")
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	return cmd
}

// writeLogin says where a code is used, for how long, and how the page is told from another one.
func writeLogin(w io.Writer, l status.Login) {
	for _, at := range l.URLs {
		fmt.Fprintf(w, "Open %s\nor open %s and type the code %s\n", page.LoginURL(at, l.Code), at, l.Code)
	}

	fmt.Fprintf(
		w, "It can be used once, until %s. Whoever uses it sees the page and can change nothing there.\n",
		l.Expires.Format("15:04:05 MST"),
	)
	fmt.Fprintf(
		w, "Your browser will not know the certificate. Compare its SHA-256 fingerprint before you continue:\n%s\n",
		l.Fingerprint,
	)
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
