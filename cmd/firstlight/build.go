package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/image"
	"firstlight.dev/firstlight/image/cache"
)

// builderFlags are what build, plan and lock have in common; site and out are not lock's, which makes no image.
type builderFlags struct {
	mirror, site, out string
	output            commandline.Format
	verbose           bool
}

func (f *builderFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(
		&f.mirror, "mirror", os.Getenv("MIRROR"),
		"base URL of a Debian archive (default $MIRROR, or this machine's own)",
	)
	f.output.Bind(cmd)
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "show what the tools print")
}

// bindImage adds what says which image is made.
func (f *builderFlags) bindImage(cmd *cobra.Command) {
	cmd.Flags().StringVar(
		&f.site, "site", "", "site document to check and put onto the stick; the image is then readable by you alone",
	)
	cmd.Flags().StringVar(&f.out, "out", "", "the image file (default: build/NAME.img)")
}

func (f *builderFlags) builder(cmd *cobra.Command) (*image.Builder, error) {
	syscall.Umask(0o022) // what is made must not depend on the caller's, and user namespaces must reach it
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}

	top, err := image.FindTop(dir)
	if err != nil {
		return nil, err
	}

	store, err := cache.DefaultStore()
	if err != nil {
		return nil, err
	}

	b := &image.Builder{
		Top:      top,
		Store:    store,
		Mirror:   f.mirror,
		Site:     f.site,
		Log:      io.Discard,
		Progress: newProgress(cmd.ErrOrStderr()),
	}
	if f.verbose {
		b.Log = cmd.ErrOrStderr()
	}

	b.Out = f.out
	if b.Out == "" {
		b.Out = filepath.Join(top, "build", "firstlight.img")
	}

	if b.Out, err = filepath.Abs(b.Out); err != nil {
		return nil, err
	}

	return b, nil
}

func newBuildCommand() *cobra.Command {
	var flags builderFlags
	var locked bool
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the stick's image from the recipe and its lock",
		Long: `Build the stick's image: what assets/recipe.yaml asks for, in the versions that
assets/recipe.lock names. What has not changed comes from the cache.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := flags.builder(cmd)
			if err != nil {
				return err
			}

			mode := image.Loose
			if locked {
				mode = image.Locked
			}

			result, err := b.Build(cmd.Context(), mode)
			if err != nil {
				return err
			}

			return showResult(cmd.OutOrStdout(), flags.output, result)
		},
	}
	flags.bind(cmd)
	flags.bindImage(cmd)
	cmd.Flags().BoolVar(
		&locked, "locked", false, "refuse to build anything that deviates from the lock, naming each difference",
	)
	return cmd
}

func showResult(w io.Writer, output commandline.Format, result *image.Result) error {
	if output == commandline.JSON {
		return commandline.WriteJSON(w, result)
	}

	var b strings.Builder
	if !result.Rebuilt {
		b.WriteString("Nothing changed.\n")
	}

	for _, file := range result.Files {
		if file.SHA256 == "" { // the list of the others' digests
			fmt.Fprintf(&b, "%9.1f MiB  %-71s  %s\n", float64(file.Bytes)/(1<<20), "", shorten(file.Path))
			continue
		}
		fmt.Fprintf(&b, "%9.1f MiB  sha256 %s  %s\n", float64(file.Bytes)/(1<<20), file.SHA256, shorten(file.Path))
	}

	if result.Site != "" {
		fmt.Fprintf(&b, "%s is inside, with its passwords: the image, its compressed form and its block map are readable by you alone; copies and the stick are as secret.\n", shorten(result.Site))
	}

	if len(result.Files) > 0 {
		path := shorten(result.Files[0].Path)
		fmt.Fprintf(
			&b, "Next: firstlight verify %s; firstlight boot %s; firstlight flash %s /dev/DEVICE\n", path, path, path,
		)
	}

	_, err := io.WriteString(w, b.String())
	return err
}

// shorten shows a path from the current directory when it is below that.
func shorten(path string) string {
	dir, err := os.Getwd()
	if err != nil {
		return path
	}

	rel, err := filepath.Rel(dir, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		return path
	}

	return rel
}
