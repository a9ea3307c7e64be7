package console

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/status"
)

// RenderScreen is Text for a screen of so many lines. If that is too small for it, what a person may have to act on
// stands first: what to do, the launch, stages that are not ready, nodes that are not proven, those which wait
// for a person at their head. What is as it should be is counted; frame cuts off what comes last.
func RenderScreen(d status.Document, now time.Time, height int) string {
	if text := RenderText(d, now); strings.Count(text, "\n") <= height {
		return text
	}

	var b strings.Builder
	fmt.Fprintf(&b, "Firstlight %s   %s   %s\n", d.Version, d.Name, Headline(d))
	if d.Next != "" {
		fmt.Fprintf(&b, "%s\n", d.Next)
	}

	b.WriteByte('\n')
	for _, s := range d.Stages {
		if s.State != status.StateReady && s.State != status.StateWaiting { // those that wait for their turn say nothing
			writeStage(&b, s, now)
		}
	}

	ready, all := countStages(d.Stages)
	fmt.Fprintf(&b, "[%s] %d of %d stages\n", stateMark(status.StateReady), ready, all)
	for _, a := range d.Addresses {
		writeAddress(&b, a)
	}

	writeLaunch(&b, d.Launch)
	for _, c := range d.Clusters {
		c.Members, c.Warnings = nil, nil // firstlightd why CLUSTER
		writeCluster(&b, c)
	}

	nodes := slices.DeleteFunc(sortByNeed(d.Nodes), func(n status.Node) bool { return n.Verified })
	if proven := len(d.Nodes) - len(nodes); proven > 0 {
		fmt.Fprintf(&b, "nodes                  %d of %d are installed and proven\n", proven, len(d.Nodes))
	}

	for _, n := range nodes {
		writeNode(&b, n, now)
	}

	if d.Artifacts != nil {
		writeArtifacts(&b, d.Artifacts)
	}

	for _, n := range d.Notes {
		fmt.Fprintf(&b, "Note: %s\n", n)
	}

	return b.String()
}

// codeHeight is from how many lines on a screen has room for a QR code: those with a frame buffer have, those in text
// mode have 25.
const codeHeight = 36

// composeScreen is what a screen of so many columns and lines shows: the headline in colour and how far it is, which
// can be read from two metres, the text, and the page's address as a QR code at the bottom if there is room.
func composeScreen(d status.Document, now time.Time, width, height int) []string {
	var top, bottom []string
	if text := progressText(d); text != "" {
		top = []string{shorten(text, width)}
	}

	if d.Page != "" && height >= codeHeight {
		bottom = append([]string{"", "The rack in a browser: " + d.Page}, RenderQR(d.Page)...)
	}

	room := height - len(top) - len(bottom)
	lines := fit(RenderScreen(d, now, room), width, room)
	all := append([]string{paint(d.Level(), lines[0], width)}, top...)
	return slices.Concat(all, lines[1:], bottom)
}

// fit cuts a text to so many lines of so many columns, and says how many are missing.
func fit(text string, width, height int) []string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if over := len(lines) - height; over > 0 {
		lines = append(lines[:height-1:height-1], fmt.Sprintf("… %d more lines: firstlightd status", over+1))
	}

	for i, line := range lines {
		lines[i] = shorten(line, width)
	}

	return lines
}

// shorten cuts a line to so many columns.
func shorten(line string, width int) string {
	if r := []rune(line); len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return line
}

// frame places lines on a terminal without clearing it first: every line is written over the old one and its rest
// erased, so that nothing flickers.
func frame(lines []string) string {
	return "\x1b[?25l\x1b[H" + strings.Join(lines, "\x1b[K\r\n") + "\x1b[K\x1b[J"
}
