package main

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/host"
	"firstlight.dev/firstlight/daemon/appliance/storage"
)

func newStorageCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "storage",
		Short: "Make, check and mount DATA and SITE of the boot disk (run once per boot by systemd)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			k := storage.Preparer{
				Log:  slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)),
				Site: []string{filepath.Join(stick.SiteDir, host.SiteName), host.BakedSite},
			}
			r, err := k.Run(cmd.Context())
			if err != nil {
				return err
			}

			text := fmt.Sprintf("storage: %s", r.State)
			if r.State == stick.StorageData {
				text += fmt.Sprintf(" on %s (%s, %d MiB), key: %s", r.Device, r.GUID, r.Bytes>>20, r.Seal)
			} else {
				text += ": " + r.Reason
			}

			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		},
	}
}
