package main

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/image/lab/view"
	"firstlight.dev/firstlight/image/lab/virtualrack"
)

func newLabStatusCommand(f *labFlags) *cobra.Command {
	var output commandline.Format
	var watch, phases bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show every machine: its phase, how far, since when, its last console line",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.client()
			if err != nil {
				return err
			}

			out := cmd.OutOrStdout()
			if watch {
				never := func(virtualrack.Status) bool { return false }
				if output == commandline.JSON {
					spans := func(s virtualrack.Status) ([]virtualrack.Span, error) { return view.Spans(c, s) }
					_, err = view.Watch(cmd.Context(), c, view.JSONLines(out, spans), never)
				} else {
					_, err = view.Show(cmd.Context(), out, c, never)
				}

				if cmd.Context().Err() != nil {
					return nil // that is how one stops looking
				}

				return err
			}

			s, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}

			switch {
			case output == commandline.JSON:
				spans, err := view.Spans(c, s)
				if err != nil {
					return err
				}
				return commandline.WriteJSON(out, view.Document{Status: s, Phases: spans})
			case phases:
				return view.ShowPhases(out, c, s)
			}

			_, err = io.WriteString(out, virtualrack.RenderScreen(s, view.Width(out), 1<<16, time.Now()))
			return err
		},
	}
	output.Bind(cmd)
	cmd.Flags().BoolVar(
		&watch, "watch", false,
		"go on showing it; Ctrl-C ends that; with -o json a document a line, one for each change",
	)
	cmd.Flags().BoolVar(&phases, "phases", false, "show how long each phase has taken")
	return cmd
}
