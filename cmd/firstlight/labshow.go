package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"firstlight.dev/firstlight/image/lab/desk"
)

func newLabStatusCommand(f *labFlags) *cobra.Command {
	var output string
	var watch, phases bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show every machine: its phase, how far, since when, its last console line",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return usageError{fmt.Errorf("output %q is not known; use text or json", output)}
			}
			c, err := f.client()
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if watch {
				_, err := watchLab(cmd.Context(), out, c, func(desk.Status) bool { return false })
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
			case output == "json":
				return showLabJSON(out, c, s)
			case phases:
				return showPhases(out, c, s)
			}
			_, err = io.WriteString(out, desk.Screen(s, labWidth(out), 1<<16, time.Now()))
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	cmd.Flags().BoolVar(&watch, "watch", false, "go on showing it; Ctrl-C ends that")
	cmd.Flags().BoolVar(&phases, "phases", false, "show how long each phase has taken")
	return cmd
}

func showLabJSON(w io.Writer, c desk.Client, s desk.Status) error {
	spans, err := labSpans(c, s)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		desk.Status
		Phases []desk.Span `json:"phases"`
	}{s, spans})
}

func labSpans(c desk.Client, s desk.Status) ([]desk.Span, error) {
	events, err := desk.ReadEvents(c.Dir)
	if err != nil {
		return nil, err
	}
	cpu := map[string]float64{}
	for _, m := range s.Machines {
		cpu[m.Name] = m.CPU
	}
	return desk.Spans(events, time.Now(), cpu), nil
}

func showPhases(w io.Writer, c desk.Client, s desk.Status) error {
	spans, err := labSpans(c, s)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, desk.PhaseTable(spans))
	return err
}

// terminal is the file behind w if it is a terminal, else nil.
func terminal(w io.Writer) *os.File {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// labWidth is how wide a table may be: as the terminal is, else as it likes.
func labWidth(w io.Writer) int {
	if f := terminal(w); f != nil {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			return width
		}
	}
	return 1 << 16
}

// watchLab shows the rack until enough or ctx says so: a screen that is drawn over on a
// terminal, a line per change elsewhere. It returns the last status.
func watchLab(ctx context.Context, w io.Writer, c desk.Client, enough func(desk.Status) bool) (desk.Status, error) {
	screen := terminal(w)
	if screen != nil {
		fmt.Fprint(w, "\x1b[2J\x1b[?25l")      // clean, without a cursor
		defer fmt.Fprint(w, "\x1b[?25h\x1b[J") // with it again
	}
	var last desk.Status
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		s, err := c.Status(ctx)
		if err != nil {
			return last, err
		}
		if screen != nil {
			width, height, err := term.GetSize(int(screen.Fd()))
			if err != nil {
				width, height = 80, 25
			}
			fmt.Fprint(w, "\x1b[H"+overdraw(desk.Screen(s, width, height-1, time.Now())))
		} else {
			fmt.Fprint(w, desk.News(last, s, time.Now()))
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

// overdraw clears the rest of each line, and of the screen, behind a text.
func overdraw(text string) string {
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
func showCluster(ctx context.Context, w io.Writer, c desk.Client, name string) error {
	on := func(command string) ([]byte, error) {
		args, err := c.SSH(desk.Appliance)
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

func newLabWhyCommand(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "why [NODE]",
		Short: "Say what each machine does and waits for",
		Args:  usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.client()
			if err != nil {
				return err
			}
			if len(args) == 1 {
				if _, err := c.Console(args[0]); err != nil {
					return err
				}
			}
			s, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			for _, m := range s.Machines {
				if len(args) == 0 || args[0] == m.Name {
					fmt.Fprintln(cmd.OutOrStdout(), whyLab(m, time.Now()))
				}
			}
			if len(args) > 0 {
				return nil
			}
			for _, cluster := range s.Clusters {
				fmt.Fprintf(cmd.OutOrStdout(), "cluster %s: %s for %s; %s\n", cluster.Name, cluster.Phase,
					time.Since(cluster.Since).Round(time.Second), cmp.Or(cluster.Error, cluster.Why))
			}
			return nil
		},
	}
}

// whyLab is a machine in words: the appliance's, or what this side of the wire sees.
func whyLab(m desk.Machine, now time.Time) string {
	text := fmt.Sprintf("%s: %s for %s", m.Name, m.Phase, now.Sub(m.Since).Round(time.Second))
	switch {
	case m.Why != "" || m.Error != "":
		text += "; " + cmp.Or(m.Why, m.Error)
	case m.Phase == desk.PhaseOff || m.Phase == desk.PhaseWaiting && !m.On:
		text += "; it has no power, and the appliance has not spoken of it"
	case m.Last != "":
		text += "; the appliance has not spoken of it; its console says: " + m.Last
	}
	if m.Next != "" {
		text += "; " + m.Next
	}
	for _, cable := range m.Cables {
		if cable.Fault.Cut || cable.Fault.Loss > 0 || cable.Fault.Delay > 0 || cable.Fault.Side != 0 {
			text += fmt.Sprintf("; its cable to %s is %+v", cable.Network, cable.Fault)
		}
	}
	return text
}
