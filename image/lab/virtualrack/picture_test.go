package virtualrack

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

// pictureColumns is how wide the screen of README's picture is.
const pictureColumns = 130

// watchInstallation looks at the rack until ctx ends, and returns the last screen on which its cluster is being
// installed; "" if it never is.
func (c command) watchInstallation(ctx context.Context) (screen string) {
	for ctx.Err() == nil {
		var s Status
		out, err := c.exec(ctx, "status", "-o", "json").Output()
		if err == nil && json.Unmarshal(out, &s) == nil && len(s.Clusters) == 1 && s.Clusters[0].Phase == "installing" &&
			len(s.Clusters[0].Members) > 0 {
			s.Dir = "build/lab"
			screen = RenderScreen(s, pictureColumns, 50, time.Now())
		}

		select {
		case <-ctx.Done():
		case <-time.After(15 * time.Second):
		}
	}
	return screen
}

// Sizes of the picture, in pixels.
const (
	letterWidth = 7.8 // of a monospaced font of 13
	lineHeight  = 18
	margin      = 14
)

// drawScreen is a screen as a picture. What is not a machine's or a cluster's own row is darker.
func drawScreen(screen string) string {
	lines, columns := strings.Split(strings.TrimRight(screen, "\n"), "\n"), 0
	for _, line := range lines {
		columns = max(columns, utf8.RuneCountInString(line))
	}
	width, height := int(float64(columns)*letterWidth)+2*margin, len(lines)*lineHeight+2*margin

	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %[1]d %[2]d\" width=\"%[1]d\" height=\"%[2]d\" "+
		"role=\"img\" aria-label=\"The screen of the lab\">\n", width, height)
	fmt.Fprintf(&b, "<rect width=\"%d\" height=\"%d\" rx=\"6\" fill=\"#101418\"/>\n", width, height)
	b.WriteString("<g font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"13\" fill=\"#d8dee6\" " +
		"xml:space=\"preserve\" style=\"white-space:pre\">\n")
	for i, line := range lines {
		if line == "" {
			continue
		}
		color := ""
		if strings.HasPrefix(line, "MACHINE") || strings.HasPrefix(line, "     ") {
			color = " fill=\"#8a97a5\""
		}
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\"%s textLength=\"%.1f\">%s</text>\n", margin, margin+13+i*lineHeight, color,
			float64(utf8.RuneCountInString(line))*letterWidth, html.EscapeString(line))
	}
	b.WriteString("</g></svg>\n")
	return b.String()
}

// TestDrawScreen: a screen becomes a picture that is XML, whatever its lines say.
func TestDrawScreen(t *testing.T) {
	drawn := drawScreen("Rack in build/lab, on for 5 s.\n\nMACHINE\nnode-1     on\n           <b> & \"c\"\n")
	assert.Contains(t, drawn, `<text x="14" y="27" textLength="234.0">Rack in build/lab, on for 5 s.</text>`)
	assert.Contains(t, drawn, `<text x="14" y="63" fill="#8a97a5" textLength="54.6">MACHINE</text>`)
	assert.Contains(t, drawn, `textLength="156.0">           &lt;b&gt; &amp; &#34;c&#34;</text>`)
	assert.Equal(t, 4, strings.Count(drawn, "<text "))
}

// chosen are those lines of what a rack prints that README shows, besides all that it prints at its end.
var chosen = regexp.MustCompile(`appliance: (systemd|ironic-ready|ready) |node-1: (registering|provisioned|proven) |node-2: proven |cluster edge: (installing|ready) `)

// atTheEnd begins what a rack prints when it has come to its end; its table of phases is not on README.
const (
	atTheEnd     = "\nlaunched: "
	phasesBegin  = "MACHINE    PHASE "
	clusterBegin = "Cluster "
)

// chooseLines are README's lines of what a rack printed.
func chooseLines(printed string) string {
	during, end, _ := strings.Cut(printed, atTheEnd)
	var b strings.Builder
	for line := range strings.Lines(during) {
		if chosen.MatchString(line) {
			b.WriteString(line)
		}
	}
	first, rest, _ := strings.Cut(end, "\n")
	_, nodes, _ := strings.Cut(rest, "\n"+clusterBegin)
	nodes, _, _ = strings.Cut(nodes, "\n\n")
	return b.String() + atTheEnd + first + "\n\n" + clusterBegin + strings.TrimRight(nodes, "\n") + "\n"
}

// phaseLines are the table of phases of what a rack printed.
func phaseLines(printed string) string {
	_, table, _ := strings.Cut(printed, "\n"+phasesBegin)
	table, _, _ = strings.Cut(table, "\n\n")
	return phasesBegin + strings.TrimRight(table, "\n") + "\n"
}
