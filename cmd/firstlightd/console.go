package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/api"
)

// consoleEscape ends a console: Ctrl-], as with telnet and virsh.
const consoleEscape = 0x1d

func newConsoleCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "console NODE",
		Short: "Watch the serial console of a node, and type there",
		Long: `Watch the serial console of a node, and type there, by serial over LAN of its BMC. Ctrl-] ends it.

What was printed while somebody watched is shown first, 64 KiB at most. It is kept in memory alone, and forgotten with
the console, which is closed when nobody watches it, when nothing is printed or typed for 30 minutes, and when the node
is deprovisioned.

A BMC gives its console to one session at a time. All who watch here, and on the appliance's page, share that one.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNames(&socket, listNodes),
		RunE: func(cmd *cobra.Command, args []string) error {
			restore, err := makeRaw(cmd.InOrStdin())
			if err != nil {
				return err
			}
			defer restore()

			said := cmd.ErrOrStderr()
			fmt.Fprintf(said, "Asking the BMC of %s for its console. Ctrl-] ends it.\r\n", args[0])
			err = api.Client{Socket: socket}.Console(
				cmd.Context(), args[0], &keys{from: cmd.InOrStdin()}, cmd.OutOrStdout(),
				func() { fmt.Fprint(said, "It is open.\r\n") },
			)
			fmt.Fprint(said, "\r\n")
			return err
		},
	}
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	return cmd
}

// makeRaw has a terminal pass each key on, until restore. Anything else is read as it is.
func makeRaw(input io.Reader) (restore func(), err error) {
	f, ok := input.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return func() {}, nil
	}
	before, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("set the terminal: %w", err)
	}
	return func() { _ = term.Restore(int(f.Fd()), before) }, nil
}

// keys are what is typed, up to consoleEscape.
type keys struct {
	from    io.Reader
	isEnded bool
}

func (k *keys) Read(p []byte) (int, error) {
	if k.isEnded {
		return 0, io.EOF
	}
	n, err := k.from.Read(p)
	if at := bytes.IndexByte(p[:n], consoleEscape); at >= 0 {
		k.isEnded = true
		return at, io.EOF
	}
	return n, err
}
