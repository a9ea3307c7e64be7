package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"firstlight.dev/firstlight/image/release"
)

// manPages are the pages of a command and of all below it, man(7), as of the time at.
func manPages(cmd *cobra.Command, version string, at time.Time) ([]release.File, error) {
	var files []release.File
	if !cmd.IsAvailableCommand() && cmd.HasParent() {
		return nil, nil
	}

	for _, sub := range cmd.Commands() {
		below, err := manPages(sub, version, at)
		if err != nil {
			return nil, err
		}
		files = append(files, below...)
	}

	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
	header := doc.GenManHeader{
		Title:   strings.ToUpper(strings.TrimSuffix(name, ".1")),
		Section: "1",
		Date:    &at,
		Source:  "firstlight " + version,
		Manual:  "Firstlight",
	}
	var text, packed bytes.Buffer
	if err := doc.GenMan(cmd, &header, &text); err != nil {
		return nil, fmt.Errorf("write manual page %s: %w", name, err)
	}

	w := gzip.NewWriter(&packed) // without a time: the same page is the same bytes
	if _, err := w.Write(text.Bytes()); err != nil {
		return nil, fmt.Errorf("write manual page %s: %w", name, err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("write manual page %s: %w", name, err)
	}

	return append(files, release.File{
		Debian:  "usr/share/man/man1/" + name + ".gz",
		Archive: "man/" + name + ".gz",
		Mode:    0o644,
		Content: packed.Bytes(),
	}), nil
}
