package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon"
)

func newBundleCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "bundle [FILE]",
		Short: "Collect status, journal, resources, logs, leases and boot records into one archive, without secrets",
		Long: `Collect into one archive (.tar.gz) what is needed to find out what is wrong: status, journals, resources, logs of pods
and nodes, leases, what was heard of each machine's boot and the packets of its last two. Secrets are taken out of every text. It works with Kubernetes
down and with the daemon dead. FILE is firstlight-TIME.tar.gz here unless given; - is standard output:

  ssh root@APPLIANCE firstlightd bundle - > bundle.tar.gz`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := daemon.NewCollector(cmd.Context(), socket, connectDefault)
			if len(args) == 1 && args[0] == "-" {
				if isTerminal(cmd.OutOrStdout()) {
					return errors.New("an archive is not for a screen; redirect it (firstlightd bundle - > bundle.tar.gz), or name a file")
				}
				return c.Write(cmd.Context(), cmd.OutOrStdout())
			}

			name := fmt.Sprintf("firstlight-%s.tar.gz", time.Now().UTC().Format("20060102T150405Z"))
			if len(args) == 1 {
				name = args[0]
			}

			if err := checkAbsent(name); err != nil {
				return err
			}

			size, err := writeAtomically(name, func(w io.Writer) error { return c.Write(cmd.Context(), w) })
			if err != nil {
				return err
			}

			fmt.Fprintf(
				cmd.OutOrStdout(), "%s, %d KiB; INDEX in it lists what is there and what is missing\n", name,
				(size+1023)/1024,
			)
			return nil
		},
	}
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	return cmd
}

// isTerminal reports whether what is read or written there is a person's.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// checkAbsent refuses a file that exists: it may be the only one of its kind.
func checkAbsent(name string) error {
	if _, err := os.Lstat(name); err == nil {
		return fmt.Errorf("%s exists; name another file, or remove it", name)
	}
	return nil
}

// writeAtomically writes a file for its owner's eyes, whole or not at all.
func writeAtomically(name string, write func(io.Writer) error) (int64, error) {
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return 0, fmt.Errorf("write %s: %w", name, err)
	}
	defer os.Remove(f.Name())

	err = write(f)
	info, serr := f.Stat()
	if err := errors.Join(err, serr, f.Close()); err != nil {
		return 0, fmt.Errorf("write %s: %w", name, err)
	}
	if err := checkAbsent(name); err != nil { // it may have come meanwhile
		return 0, err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return 0, fmt.Errorf("write %s: %w", name, err)
	}

	return info.Size(), nil
}
