package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/image"
	"firstlight.dev/firstlight/image/release"
)

func newReleaseCommand() *cobra.Command {
	var sign string
	var flags builderFlags
	cmd := &cobra.Command{
		Use:   "release",
		Short: "Package the built image and this command for others",
		Long: `Package what was built: the image, its block map and its list of contents, this command and clusterctl as
Debian package and archive, all of it in one archive for an installation, release notes and SHA256SUMS, in
build/release/VERSION. The sources must be committed, and image and command built of them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := os.Getwd()
			if err != nil {
				return err
			}

			top, err := image.FindTop(dir)
			if err != nil {
				return err
			}

			revision, err := image.ReadRevision(cmd.Context(), top)
			if err != nil {
				return err
			}
			if own := readBuildVersion().Version; own != revision.Version() {
				return fmt.Errorf("this command is %s, the sources are %s; run: make release", own, revision.Version())
			}

			files, err := commandFiles(cmd.Root(), top)
			if err != nil {
				return err
			}

			pages, err := manPages(cmd.Root(), revision.Version(), revision.Time.UTC())
			if err != nil {
				return err
			}
			files = append(files, pages...)

			b, err := flags.builder(cmd)
			if err != nil {
				return err
			}

			clusterctl, err := b.Clusterctl(cmd.Context())
			if err != nil {
				return err
			}

			more, err := clusterctlFiles(clusterctl)
			if err != nil {
				return err
			}

			r := release.Release{
				Revision:  revision,
				Image:     filepath.Join(top, "build", "firstlight.img"),
				Lock:      filepath.Join(top, "assets", "recipe.lock"),
				Command:   append(files, more...),
				Changelog: filepath.Join(top, "docs", "CHANGELOG.md"),
				Sign:      sign,
				Out:       filepath.Join(top, "build", "release"),
			}
			result, err := r.Write(cmd.Context())
			if err != nil {
				return err
			}

			return showRelease(cmd.OutOrStdout(), flags.output, result)
		},
	}
	cmd.Flags().StringVar(&sign, "sign", "", `shell command that signs the file appended to it, such as "minisign -Sm"`)
	flags.output.Bind(cmd)
	return cmd
}

// commandFiles are this program, its completions for shells, and the licence.
func commandFiles(root *cobra.Command, top string) ([]release.File, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}

	program, err := os.ReadFile(self)
	if err != nil {
		return nil, fmt.Errorf("read this program: %w", err)
	}

	licence, err := os.ReadFile(filepath.Join(top, "LICENSE"))
	if err != nil {
		return nil, fmt.Errorf("read licence: %w", err)
	}

	files := []release.File{
		{Debian: "usr/bin/firstlight", Archive: "firstlight", Mode: 0o755, Content: program},
		{Debian: "usr/share/doc/firstlight/copyright", Archive: "LICENSE", Mode: 0o644, Content: licence},
	}
	for _, shell := range []struct {
		debian, archive string
		write           func(io.Writer) error
	}{
		{"usr/share/bash-completion/completions/firstlight", "completions/firstlight.bash",
			func(w io.Writer) error { return root.GenBashCompletionV2(w, true) }},
		{"usr/share/zsh/vendor-completions/_firstlight", "completions/_firstlight", root.GenZshCompletion},
		{"usr/share/fish/vendor_completions.d/firstlight.fish", "completions/firstlight.fish",
			func(w io.Writer) error { return root.GenFishCompletion(w, true) }},
	} {
		var text bytes.Buffer
		if err := shell.write(&text); err != nil {
			return nil, fmt.Errorf("write %s: %w", shell.archive, err)
		}
		files = append(
			files, release.File{Debian: shell.debian, Archive: shell.archive, Mode: 0o644, Content: text.Bytes()},
		)
	}

	return files, nil
}

// clusterctlFiles are clusterctl and the repository that it finds beside itself: in Debian's package in /usr/share, in the
// archive next to it.
func clusterctlFiles(c image.Clusterctl) ([]release.File, error) {
	program, err := os.ReadFile(c.Program)
	if err != nil {
		return nil, fmt.Errorf("read clusterctl: %w", err)
	}

	files := []release.File{{Debian: "usr/bin/clusterctl", Archive: "clusterctl", Mode: 0o755, Content: program}}
	for _, name := range slices.Sorted(maps.Keys(c.Repository)) {
		text, err := os.ReadFile(c.Repository[name])
		if err != nil {
			return nil, fmt.Errorf("read repository of clusterctl: %w", err)
		}
		files = append(files, release.File{
			Debian:  "usr/share/firstlight/cluster-api/" + name,
			Archive: "cluster-api/" + name,
			Mode:    0o644,
			Content: text,
		})
	}

	return files, nil
}

func showRelease(w io.Writer, output commandline.Format, result *release.Result) error {
	if output == commandline.JSON {
		return commandline.WriteJSON(w, result)
	}

	var b bytes.Buffer
	for _, name := range result.Files {
		fmt.Fprintln(&b, filepath.Join(shorten(result.Dir), name))
	}

	if result.Signature == "" {
		b.WriteString("The release is unsigned; to sign it: make release SIGN='minisign -Sm'\n")
	} else {
		fmt.Fprintf(&b, "SHA256SUMS is signed by %s.\n", result.Signature)
	}

	_, err := w.Write(b.Bytes())
	return err
}
