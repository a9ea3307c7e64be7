package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"firstlight.dev/firstlight/assets/commandline"
)

// meter shows how far the phases of a transfer are, one after the other: a bar that is drawn over on a terminal, a
// line for every tenth elsewhere.
type meter struct {
	w        io.Writer
	terminal bool
	now      func() time.Time

	phase        string
	began, drawn time.Time
	tenth        int64
}

func newMeter(w io.Writer) *meter {
	f, ok := w.(*os.File)
	return &meter{w: w, terminal: ok && term.IsTerminal(int(f.Fd())), now: time.Now}
}

// show takes how many bytes of a phase are done.
func (m *meter) show(phase string, done, total int64) {
	now := m.now()
	if phase != m.phase {
		m.phase, m.began, m.drawn, m.tenth = phase, now, time.Time{}, -1
	}

	text := describeTransfer(done, total, now.Sub(m.began))
	if !m.terminal {
		if tenth := 10 * done / max(total, 1); tenth != m.tenth {
			m.tenth = tenth
			fmt.Fprintf(m.w, "%s %s\n", phase, text)
		}

		return
	}

	if now.Sub(m.drawn) < drawInterval && done < total {
		return
	}

	m.drawn = now
	fmt.Fprintf(m.w, "\r\x1b[K  %-6s %s %s", phase, commandline.RenderBar(30, done, total), text)
	if done >= total {
		fmt.Fprintln(m.w)
	}
}

// describeTransfer says how much is done, how fast, and how long the rest takes at that pace; the pace is not told of
// the first second.
func describeTransfer(done, total int64, took time.Duration) string {
	text := fmt.Sprintf("%3d %% of %s", 100*done/max(total, 1), formatSize(total))
	if took < time.Second || done == 0 {
		return text
	}

	rate := float64(done) / took.Seconds()
	text += fmt.Sprintf(", %.1f MiB/s", rate/(1<<20))
	if done < total {
		left := time.Duration(float64(total-done) / rate * float64(time.Second)).Round(time.Second)
		text += fmt.Sprintf(", %d:%02d min left", left/time.Minute, left%time.Minute/time.Second)
	}

	return text
}

// formatSize is an amount of bytes for people.
func formatSize(n int64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
