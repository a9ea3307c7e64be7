package virtualrack

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/excerpt"
)

// wide is a screen on which a sentence has room behind the columns.
const wide = 110

// RenderScreen is a rack as one screen of at most width columns and height lines, at the moment now. Where
// they have room, what a person can do and the console's last line stand below each machine. Where they
// have not, these go first, then the nodes of clusters that are installed, then all nodes of clusters.
func RenderScreen(s Status, width, height int, now time.Time) string {
	width, height = max(width, 60), max(height, 4)
	full := func(m Machine) []string {
		if width < wide {
			return []string{"", machineReason(m), m.Next, m.Last}
		}
		return []string{machineReason(m), m.Next, m.Last}
	}
	short := func(m Machine) []string { return []string{cmp.Or(machineReason(m), m.Next, m.Last)} }
	every := func(ClusterNode) bool { return true }
	open := func(m ClusterNode) bool { return m.Phase != memberInstalled }
	none := func(ClusterNode) bool { return false }
	var lines []string
	for _, l := range []layout{{full, every}, {short, every}, {short, open}, {short, none}} {
		if lines = screenLines(s, now, l); len(lines) <= height {
			break
		}
	}

	if over := len(lines) - height; over > 0 {
		lines = append(lines[:height-1:height-1], fmt.Sprintf("… %d more lines: firstlight lab status", over+1))
	}

	for i, line := range lines {
		lines[i] = clip(line, width)
	}

	return strings.Join(lines, "\n") + "\n"
}

// layout is what of a rack stands on a screen.
type layout struct {
	texts func(Machine) []string // the first stands in the machine's row
	shown func(ClusterNode) bool
}

// screenLines are the screen, of any length.
func screenLines(s Status, now time.Time, l layout) []string {
	lines := []string{fmt.Sprintf("Rack in %s, on for %s.  %s", s.Dir, formatDuration(now.Sub(s.Since)), s.Text), "",
		fmt.Sprintf("%-10s %-4s %-18s %-17s %-9s %s", "MACHINE", "", "PHASE", "", "FOR", "")}
	for _, m := range s.Machines {
		texts := l.texts(m)
		lines = append(lines, fmt.Sprintf(
			"%-10s %-4s %-18s %-17s %-9s %s", m.Name, map[bool]string{true: "on", false: "off"}[m.On], m.Phase,
			commandline.RenderBar(barColumns, int64(m.Percent), 100), formatDuration(now.Sub(m.Since)), texts[0],
		))
		for _, text := range texts[1:] {
			if text != "" {
				lines = append(lines, "           "+text)
			}
		}
	}

	for _, c := range s.Clusters {
		lines = append(lines, fmt.Sprintf(
			"%-15s %-18s %-17s %-9s %s", ofCluster(c.Name), c.Phase, commandline.RenderBar(barColumns, int64(c.Percent), 100),
			formatDuration(now.Sub(c.Since)), cmp.Or(c.Error, c.Why),
		))
		for _, m := range c.Members {
			if l.shown(m) {
				lines = append(lines, "  "+m.String())
			}
		}
	}

	for _, x := range s.Unknown {
		lines = append(lines, x.String())
	}

	slow := throttledText(s.Machines)
	if slow != "" || len(s.Outside) > 0 || len(s.Faults) > 0 {
		lines = append(lines, "")
	}

	if slow != "" {
		lines = append(lines, slow)
	}

	lines = append(lines, s.Faults...)
	if text := outsideText(s.Outside); text != "" {
		lines = append(lines, text)
	}

	return lines
}

// machineReason is why a machine is as it is. Its error is what went wrong last, be it over, in the words
// of whatever program it was: it serves where there is no sentence.
func machineReason(m Machine) string { return cmp.Or(m.Why, m.Error) }

// throttledText tells which machines are.
func throttledText(machines []Machine) string {
	var all []string
	for _, m := range machines {
		if m.Share > 0 {
			all = append(all, fmt.Sprintf("%s (%v)", m.Name, m.Share))
		}
	}

	if len(all) == 0 {
		return ""
	}

	return "Throttled, to so many processors of this computer: " + strings.Join(all, ", ")
}

// outsideText tells of frames that had no destination in the rack.
func outsideText(all map[string]int) string {
	if len(all) == 0 {
		return ""
	}

	var names []string
	for a, n := range all {
		names = append(names, fmt.Sprintf("%s (%d)", a, n))
	}

	slices.Sort(names)
	return "Asked for outside the rack, and not reached: " + strings.Join(names, ", ")
}

// barColumns is how wide a bar is, without its brackets.
const barColumns = 15

// clip keeps a line on its line, and takes out what could move the cursor.
func clip(line string, width int) string {
	r := []rune(strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, commandline.StripEscapes(line)))
	if len(r) > width {
		r = append(r[:width-1], '…')
	}
	return strings.TrimRight(string(r), " ")
}

// formatDuration is a duration as people say it.
func formatDuration(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d:%02d min", int(d.Minutes()), int(d.Seconds())%60)
	default:
		return fmt.Sprintf("%d:%02d h", int(d.Hours()), int(d.Minutes())%60)
	}
}

// withoutDigits is a sentence without its numbers: what only counts on is no news.
func withoutDigits(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, text)
}

// RenderChanges are the lines to print when a rack goes from before to after, where a screen cannot be
// drawn over: one for each machine whose phase or sentences for people changed, and one for each
// step of each cluster.
func RenderChanges(before, after Status, now time.Time) string {
	var b strings.Builder
	old := map[string]Machine{}
	for _, m := range before.Machines {
		old[m.Name] = m
	}

	for _, m := range after.Machines {
		o := old[m.Name]
		if o.Phase == m.Phase && o.Next == m.Next && withoutDigits(machineReason(o)) == withoutDigits(machineReason(m)) {
			continue
		}

		line := fmt.Sprintf("%s %s: %s", now.Format("15:04:05"), m.Name, m.Phase)
		if o.Phase != "" && o.Phase != m.Phase {
			line += fmt.Sprintf(" (after %s of %s)", formatDuration(m.Since.Sub(o.Since)), o.Phase)
		}

		if text := machineReason(m); text != "" {
			line += "; " + text
		}

		if m.Next != "" && m.Next != o.Next {
			line += "; " + m.Next
		}

		fmt.Fprintln(&b, clip(line, 400))
	}

	known := map[string]Cluster{}
	for _, c := range before.Clusters {
		known[c.Name] = c
	}

	for _, c := range after.Clusters {
		o := known[c.Name]
		if o.Phase == c.Phase && o.Error == c.Error && o.Nodes == c.Nodes && withoutDigits(o.Why) == withoutDigits(c.Why) {
			b.WriteString(clusterNodeChanges(o, c, now))
			continue
		}

		line := fmt.Sprintf("%s %s: %s", now.Format("15:04:05"), ofCluster(c.Name), c.Phase)
		if o.Phase != "" && o.Phase != c.Phase {
			line += fmt.Sprintf(" (after %s of %s)", formatDuration(c.Since.Sub(o.Since)), o.Phase)
		}

		if text := cmp.Or(c.Error, c.Why); text != "" {
			line += "; " + text
		}

		fmt.Fprintln(&b, clip(line, 400))
		b.WriteString(clusterNodeChanges(o, c, now))
	}

	for _, x := range after.Unknown {
		if !slices.ContainsFunc(
			before.Unknown,
			func(o UnknownMachine) bool { return o.Name == x.Name && withoutDigits(o.Why) == withoutDigits(x.Why) },
		) {
			fmt.Fprintf(&b, "%s %s\n", now.Format("15:04:05"), clip(x.String(), 400))
		}
	}

	for _, f := range after.Faults {
		if !slices.Contains(before.Faults, f) {
			fmt.Fprintf(&b, "%s %s\n", now.Format("15:04:05"), f)
		}
	}

	if a, o := outsideText(after.Outside), outsideText(before.Outside); len(after.Outside) != len(before.Outside) && a != o {
		fmt.Fprintf(&b, "%s %s\n", now.Format("15:04:05"), a)
	}

	return b.String()
}

// clusterNodeChanges are lines for the nodes of a cluster whose phase or reason changed. While one is being
// installed the cluster's own line says what it does.
func clusterNodeChanges(before, after Cluster, now time.Time) string {
	var b strings.Builder
	for _, m := range after.Members {
		same := func(o ClusterNode) bool {
			return o.Name == m.Name && o.Server == m.Server && o.Phase == m.Phase && (m.Phase == memberInstalling || withoutDigits(o.Why) == withoutDigits(m.Why))
		}
		if !slices.ContainsFunc(before.Members, same) {
			fmt.Fprintln(&b, clip(fmt.Sprintf(
				"%s %s: %s", now.Format("15:04:05"), ofCluster(after.Name),
				excerpt.Line(m.String()),
			), 400))
		}
	}
	return b.String()
}

// PhaseTable shows how long each phase of each machine took, and the processor time that the
// machine used in it. Phases of less than half a second are left out, and time without power does not
// count: it is as long as the rack was down.
func PhaseTable(spans []Span) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-10s %-20s %10s %10s\n", "MACHINE", "PHASE", "TOOK", "CPU")
	machine := ""
	var seconds, cpu float64
	total := func() {
		if machine != "" {
			fmt.Fprintf(&b, "%-10s %-20s %8.0f s %8.0f s\n", "", "total", seconds, cpu)
		}
	}
	for _, s := range spans {
		if s.Machine != machine {
			total()
			machine, seconds, cpu = s.Machine, 0, 0
			fmt.Fprintf(&b, "%s\n", machine)
		}

		if s.Open && (s.Phase == PhaseReady || s.Phase == PhaseVerified || s.Phase == PhaseInstalled) {
			continue // it is where it was to come (a cluster is ready, too)
		}

		if s.Phase != PhaseOff {
			seconds, cpu = seconds+s.Seconds, cpu+s.CPU
		}

		if s.Seconds < 0.5 {
			continue
		}

		note := ""
		if s.Open {
			note = "  so far"
		}

		fmt.Fprintf(&b, "%-10s %-20s %8.0f s %8.0f s%s\n", "", s.Phase, s.Seconds, s.CPU, note)
	}

	total()
	return b.String()
}
