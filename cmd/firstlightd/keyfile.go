package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/storage"
)

func newKeyFileCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "key-file",
		Short: "Make a key file that opens DATA on any machine, and print it, once",
		Long: `Make a key file that opens DATA on any machine, and print it, once: the appliance has no copy. An earlier key file
opens nothing from then on. It is for the day on which the appliance's own machine is broken: write the line into a file
` + stick.KeyFileName + ` on a medium (FAT or ext4) labelled ` + stick.KeyMediumLabel + `, attach that to another machine and start the
stick there. DATA is then sealed to that machine's TPM, and the medium may be removed; without a TPM it is needed at each
start.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Getuid() != 0 {
				return errors.New("make a key file: this needs root on the appliance")
			}

			record, err := stick.Load[stick.StorageInfo](stick.StorageInfoFile)
			if err != nil {
				return err
			}

			k := storage.Preparer{Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))}
			err = k.NewKeyFile(cmd.Context(), record, func(line string) error {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), line)
				return err
			})
			if err != nil {
				return err
			}

			record.KeyFile = true
			return stick.Save(stick.StorageInfoFile, record)
		},
	}
}
