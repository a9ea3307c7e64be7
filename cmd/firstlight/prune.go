package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/image/cache"
)

func newPruneCommand() *cobra.Command {
	var unused time.Duration
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove from the cache what no build used for some time",
		Long: `Remove from the cache what no build used for some time. The cache ($FIRSTLIGHT_CACHE, or
firstlight in the user's cache directory) grows with every change of a part, by a gigabyte when
the root file system changes. What is removed is made again if a build asks for it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if unused < 0 {
				return commandline.NewUsageError(errors.New("--unused-for is a time that has passed, such as 24h"))
			}

			store, err := cache.DefaultStore()
			if err != nil {
				return err
			}

			n, err := store.Prune(time.Now().Add(-unused))
			if err != nil {
				return err
			}

			_, err = fmt.Fprintf(
				cmd.OutOrStdout(), "%d parts that were not used for %s are removed from %s\n", n, unused,
				shorten(store.Dir),
			)
			return err
		},
	}
	cmd.Flags().DurationVar(&unused, "unused-for", 7*24*time.Hour, "how long a part was not used")
	return cmd
}
