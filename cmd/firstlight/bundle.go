package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/daemon/engine/remote"
)

func newBundleCommand() *cobra.Command {
	var host string
	cmd := &cobra.Command{
		Use:   "bundle [FILE]",
		Short: "Fetch an appliance's support bundle: status, journals, resources and logs, without secrets",
		Long: `Run firstlightd bundle on an appliance, and write the archive here. FILE is firstlight-TIME.tar.gz unless given; it
must not exist yet.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := fmt.Sprintf("firstlight-%s.tar.gz", time.Now().UTC().Format("20060102T150405Z"))
			if len(args) == 1 {
				name = args[0]
			}
			return fetchBundle(cmd, host, name)
		},
	}
	bindHost(cmd, &host)
	return cmd
}

// fetchBundle writes the archive for its owner's eyes, whole or not at all.
func fetchBundle(cmd *cobra.Command, host, name string) error {
	_, c, err := connect(cmd.Context(), host)
	if err != nil {
		return err
	}
	defer c.Close()

	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists; name another file, or remove it", name)
	}
	if err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}

	err = c.Run(cmd.Context(), remote.Streams{Out: f, Err: cmd.ErrOrStderr()}, "bundle", "-")
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}

	_, err = fmt.Fprintln(cmd.OutOrStdout(), name)
	return err
}
