package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/daemon/appliance/sitedocument"
	"firstlight.dev/firstlight/daemon/engine/remote"
)

func newSiteEditCommand() *cobra.Command {
	var host string
	cmd := &cobra.Command{
		Use:   "edit",
		Short: "Edit site.yaml of an appliance",
		Long: `Open site.yaml of the appliance of the last firstlight login, or of HOST, in the editor that VISUAL or EDITOR
names, or vi, and replace it by what was typed. A document with a mistake changes nothing, and can be edited again. One
that somebody else has replaced meanwhile stays as they left it.

The text has the passwords of the site. It is in a folder for you alone, which is removed when the document is
replaced.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return editSite(cmd, host) },
	}
	bindHost(cmd, &host)
	return cmd
}

// editSite has a person edit the site document of an appliance until it is replaced or they give up.
func editSite(cmd *cobra.Command, host string) error {
	var was bytes.Buffer
	streams := remote.Streams{Out: &was, Err: cmd.ErrOrStderr()}
	if err := runSite(cmd.Context(), host, streams, "show"); err != nil {
		return err
	}

	dir, err := os.MkdirTemp(os.Getenv("XDG_RUNTIME_DIR"), "firstlight-site-") // in memory, where there is one
	if err != nil {
		return err
	}
	file := filepath.Join(dir, sitedocument.Name)
	if err := os.WriteFile(file, was.Bytes(), 0o600); err != nil {
		return err
	}

	for answers := bufio.NewReader(cmd.InOrStdin()); ; {
		text, err := runEditor(cmd, file)
		if err != nil {
			return keepTyped(err, file)
		}
		if bytes.Equal(text, was.Bytes()) {
			fmt.Fprintln(cmd.OutOrStdout(), "site.yaml is as it was")
			return os.RemoveAll(dir)
		}

		streams := remote.Streams{In: bytes.NewReader(text), Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()}
		err = runSite(cmd.Context(), host, streams, "replace", "--was", sitedocument.Digest(was.Bytes()), "-")
		if err == nil {
			return os.RemoveAll(dir)
		}

		fmt.Fprintf(cmd.ErrOrStderr(), "%v\nEdit it again? [y/n] ", err)
		answer, _ := answers.ReadString('\n') // at the end of the input it is no
		if !strings.HasPrefix(strings.ToLower(answer), "y") {
			return keepTyped(err, file)
		}
	}
}

// runSite runs firstlightd site on an appliance. Each time it connects anew: an editor may be open for hours.
func runSite(ctx context.Context, host string, streams remote.Streams, words ...string) error {
	_, c, err := connect(ctx, host)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Run(ctx, streams, append([]string{"site"}, words...)...)
}

// runEditor has a person edit a file, and returns what it has then.
func runEditor(cmd *cobra.Command, file string) ([]byte, error) {
	editor := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"), "vi")
	run := exec.CommandContext(cmd.Context(), "sh", "-c", editor+` "$1"`, "sh", file) // it may have arguments
	if terminal, ok := cmd.InOrStdin().(*os.File); ok {
		run.Stdin = terminal
	}
	run.Stdout, run.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
	if err := run.Run(); err != nil {
		return nil, fmt.Errorf("run the editor %s: %w; EDITOR names another one", editor, err)
	}
	return os.ReadFile(file)
}

// keepTyped says where a text is that was not taken.
func keepTyped(err error, file string) error {
	return fmt.Errorf("%w; what you typed is in %s, with the passwords of the site: remove it", err, file)
}
