package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"firstlight.dev/firstlight/assets/commandline"
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
					spans := func(s virtualrack.Status) ([]virtualrack.Span, error) { return labSpans(c, s) }
					_, err = watchLab(cmd.Context(), c, jsonLines(out, spans), never)
				} else {
					_, err = showLab(cmd.Context(), out, c, never)
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
				spans, err := labSpans(c, s)
				if err != nil {
					return err
				}
				return commandline.WriteJSON(out, labDocument{s, spans})
			case phases:
				return showPhases(out, c, s)
			}

			_, err = io.WriteString(out, virtualrack.RenderScreen(s, labWidth(out), 1<<16, time.Now()))
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

// labDocument is a rack for programs.
type labDocument struct {
	virtualrack.Status
	Phases []virtualrack.Span `json:"phases"`
}

func labSpans(c virtualrack.Client, s virtualrack.Status) ([]virtualrack.Span, error) {
	events, err := virtualrack.ReadEvents(c.Dir)
	if err != nil {
		return nil, err
	}

	cpu := map[string]float64{}
	for _, m := range s.Machines {
		cpu[m.Name] = m.CPU
	}

	return virtualrack.Spans(events, time.Now(), cpu), nil
}

func showPhases(w io.Writer, c virtualrack.Client, s virtualrack.Status) error {
	spans, err := labSpans(c, s)
	if err != nil {
		return err
	}

	_, err = io.WriteString(w, virtualrack.PhaseTable(spans))
	return err
}

// terminalOf is the file behind w if it is a terminal, else nil.
func terminalOf(w io.Writer) *os.File {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// labWidth is how wide a table may be: as the terminal is, else as it likes.
func labWidth(w io.Writer) int {
	if f := terminalOf(w); f != nil {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			return width
		}
	}
	return 1 << 16
}

// renderer is how somebody looks at a rack all the time: it is shown beside how it was before.
type renderer func(before, after virtualrack.Status) error

// lineRenderer is a line per change.
func lineRenderer(w io.Writer) renderer {
	return func(before, after virtualrack.Status) error {
		_, err := io.WriteString(w, virtualrack.RenderChanges(before, after, time.Now()))
		return err
	}
}

// jsonLines is a document per change, each on a line of its own, for programs.
func jsonLines(w io.Writer, spans func(virtualrack.Status) ([]virtualrack.Span, error)) renderer {
	encoder, begun := json.NewEncoder(w), false
	return func(before, after virtualrack.Status) error {
		if begun && virtualrack.RenderChanges(before, after, time.Now()) == "" {
			return nil
		}

		begun = true
		phases, err := spans(after)
		if err != nil {
			return err
		}

		return encoder.Encode(labDocument{after, phases})
	}
}

// screenRenderer is a screen that is drawn over.
func screenRenderer(screen *os.File) renderer {
	return func(_, after virtualrack.Status) error {
		width, height, err := term.GetSize(int(screen.Fd()))
		if err != nil {
			width, height = 80, 25
		}

		_, err = io.WriteString(
			screen, "\x1b[H"+clearBehind(virtualrack.RenderScreen(after, width, height-1, time.Now())),
		)
		return err
	}
}

// showLab shows the rack to people until enough or ctx says so: on a screen on a terminal, as lines elsewhere.
func showLab(
	ctx context.Context,
	w io.Writer,
	c virtualrack.Client,
	enough func(virtualrack.Status) bool,
) (virtualrack.Status, error) {
	screen := terminalOf(w)
	if screen == nil {
		return watchLab(ctx, c, lineRenderer(w), enough)
	}

	fmt.Fprint(w, "\x1b[2J\x1b[?25l")      // clean, without a cursor
	defer fmt.Fprint(w, "\x1b[?25h\x1b[J") // with it again
	return watchLab(ctx, c, screenRenderer(screen), enough)
}

// watchLab shows the rack until enough or ctx says so. It returns the last status.
func watchLab(
	ctx context.Context,
	c virtualrack.Client,
	see renderer,
	enough func(virtualrack.Status) bool,
) (virtualrack.Status, error) {
	var last virtualrack.Status
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		s, err := c.Status(ctx)
		if err != nil {
			return last, err
		}
		if err := see(last, s); err != nil {
			return last, err
		}

		last = s
		if enough(s) {
			return s, nil
		}

		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-tick.C:
		}
	}
}

// clearBehind clears the rest of each line, and of the screen, behind a text.
func clearBehind(text string) string {
	out := make([]byte, 0, len(text)+256)
	for _, b := range []byte(text) {
		if b == '\n' {
			out = append(out, "\x1b[K"...)
		}
		out = append(out, b)
	}
	return string(out) + "\x1b[J"
}

// showCluster shows the nodes of a cluster, and what its pods answered each other when it was verified.
func showCluster(ctx context.Context, w io.Writer, c virtualrack.Client, name string) error {
	on := func(command string) ([]byte, error) {
		args, err := c.SSH(virtualrack.Appliance)
		if err != nil {
			return nil, err
		}

		out, err := exec.CommandContext(ctx, args[0], append(args[1:], command)...).Output()
		if err != nil {
			return nil, fmt.Errorf("look at cluster %s: %w", name, err)
		}

		return out, nil
	}
	dir := "/opt/kud/multi-cluster/" + name + "/artifacts/"
	get := "kubectl --kubeconfig " + dir + "admin.conf get nodes -o wide"
	nodes, err := on(get)
	if err != nil {
		return err
	}

	text, err := on("cat " + dir + "verification.json")
	if err != nil {
		return err
	}

	var report struct {
		Questions []struct{ From, What, Got string }
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return fmt.Errorf("read verification of cluster %s: %w", name, err)
	}

	fmt.Fprintf(w, "Cluster %s: %s\n%s\nAsked of a pod on each node:\n", name, get, nodes)
	for _, q := range report.Questions {
		fmt.Fprintf(w, "  from %s, %s: %s\n", q.From, q.What, q.Got)
	}

	_, err = fmt.Fprintln(w)
	return err
}
