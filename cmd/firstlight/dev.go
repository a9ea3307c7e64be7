package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/devpush"
	"firstlight.dev/firstlight/daemon/engine/remote"
	"firstlight.dev/firstlight/image"
)

func newDevCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "See a change of this tree at work",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDevPushCommand())
	return cmd
}

func newDevPushCommand() *cobra.Command {
	var to targetFlags
	var undo, force bool
	cmd := &cobra.Command{
		Use:   "push [PROGRAM...] [--to HOST | --lab | --try | --installed]",
		Short: "Compile a program of this tree and have an appliance that runs use it until it restarts",
		Long: `Compile programs of this tree as the image has them, send them to an appliance that runs, and restart there exactly
what runs them. They are kept until the appliance restarts or --undo takes all of them away. The status of the appliance
says so. Without PROGRAM it is firstlightd. There are:

` + listPushPrograms() + `
Without a flag it is the appliance that there is: that of the last firstlight login, the rack of firstlight lab or of
firstlight try, or the one that is installed on this machine. If there are several, one must be named.

An appliance whose owner takes signed versions alone refuses: by updates.keys of site.yaml, or by keys in its firmware.
Root can run any program there all the same; --force does it, and is in the audit log.`,
		ValidArgs: pushNames(),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case undo && len(args) > 0:
				return commandline.NewUsageError(errors.New("--undo takes away all that was pushed, and no program is named"))
			case undo:
				return undoDevPush(cmd, to)
			case len(args) == 0:
				args = []string{"firstlightd"}
			}

			groups, err := groupPrograms(args)
			if err != nil {
				return commandline.NewUsageError(err)
			}
			return devPush(cmd, to, groups, force)
		},
	}
	to.bind(cmd)
	cmd.Flags().BoolVar(&undo, "undo", false, "take away all that was pushed")
	cmd.Flags().BoolVar(&force, "force", false, "push although the appliance's owner takes signed versions alone")
	return cmd
}

func pushNames() (names []string) {
	for _, p := range devpush.Programs() {
		names = append(names, p.Name)
	}
	return names
}

func listPushPrograms() string {
	var b strings.Builder
	for _, p := range devpush.Programs() {
		fmt.Fprintf(&b, "  %-20s%s\n", p.Name, p.Does)
	}
	return b.String()
}

// groupPrograms are the programs of these names, those with the same file together.
func groupPrograms(names []string) (groups [][]devpush.Program, err error) {
	index := map[string]int{}
	for _, name := range names {
		p, err := devpush.Find(name)
		if err != nil {
			return nil, err
		}
		k, seen := index[p.Build]
		if !seen {
			k = len(groups)
			index[p.Build] = k
			groups = append(groups, nil)
		}
		groups[k] = append(groups[k], p)
	}
	return groups, nil
}

func undoDevPush(cmd *cobra.Command, to targetFlags) error {
	appliance, err := to.find(cmd.Context())
	if err != nil {
		return err
	}
	defer appliance.close()
	return appliance.run(cmd.Context(), remote.Streams{Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()}, "push", "--undo")
}

// devPush compiles and pushes one file after the other.
func devPush(cmd *cobra.Command, to targetFlags, groups [][]devpush.Program, force bool) error {
	ctx, began, said := cmd.Context(), time.Now(), cmd.ErrOrStderr()
	builder, err := (&builderFlags{}).builder(cmd)
	if err != nil {
		return err
	}
	revision, err := image.ReadRevision(ctx, builder.Top)
	if err != nil {
		return err
	}
	appliance, err := to.find(ctx)
	if err != nil {
		return err
	}
	defer appliance.close()
	dir, err := os.MkdirTemp("", "firstlight-push-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	for _, programs := range groups {
		build := programs[0].Build
		fmt.Fprintf(said, "compile %s\n", build)
		file := filepath.Join(dir, build)
		if err := builder.Compile(ctx, build, file); err != nil {
			return err
		}
		digest, size, err := digestOf(file)
		if err != nil {
			return err
		}

		fmt.Fprintf(said, "%.0fs: send %d MiB to %s\n", time.Since(began).Seconds(), size>>20, appliance.name)
		words := []string{"push", "--sha256", digest, "--revision", pushRevision(revision.Commit, revision.IsDirty)}
		if force {
			words = append(words, "--force")
		}
		for _, p := range programs {
			words = append(words, p.Name)
		}
		if err := sendProgram(ctx, cmd, appliance, file, words); err != nil {
			return err
		}
	}
	fmt.Fprintf(said, "%.0fs: done\n", time.Since(began).Seconds())
	return nil
}

// pushRevision names sources: COMMIT, COMMIT+dirty where files differ from it, or unknown outside git.
func pushRevision(commit string, isDirty bool) string {
	switch {
	case commit == "":
		return "unknown"
	case isDirty:
		return commit[:min(12, len(commit))] + "+dirty"
	}
	return commit[:min(12, len(commit))]
}

func digestOf(file string) (digest string, size int64, err error) {
	f, err := os.Open(file)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()

	sum := sha256.New()
	size, err = io.Copy(sum, f)
	return hex.EncodeToString(sum.Sum(nil)), size, err
}

// sendProgram runs a command of the appliance with the compressed file as its input.
func sendProgram(ctx context.Context, cmd *cobra.Command, to target, file string, words []string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()

	read, write := io.Pipe()
	go func() {
		z, err := zstd.NewWriter(write, zstd.WithEncoderLevel(zstd.SpeedFastest))
		if err == nil {
			_, err = io.Copy(z, f)
			err = errors.Join(err, z.Close())
		}
		write.CloseWithError(err) // nil is the end of the input
	}()
	defer read.Close()
	return to.run(ctx, remote.Streams{In: read, Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()}, words...)
}
