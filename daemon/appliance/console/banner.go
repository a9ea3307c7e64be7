package console

import (
	"fmt"
	"strings"
	"time"

	"rsc.io/qr"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/status"
)

// barColumns is how long a bar of the banner is.
const barColumns = 30

// progressText draws how far the bring-up is, then how far the nodes are on their way to be verified, with the time
// that they have taken and may take.
func progressText(d status.Document) string {
	switch {
	case d.State != status.StateReady:
		ready, all := countStages(d.Stages)
		if all == 0 {
			return ""
		}
		return fmt.Sprintf("bring-up %s %d of %d stages", commandline.RenderBar(barColumns, ready, all), ready, all)
	case d.Launch.Nodes > 0 && d.Launch.Verified < d.Launch.Nodes:
		return fmt.Sprintf(
			"nodes    %s %d of %d proven; %s of %s",
			commandline.RenderBar(barColumns, sumPercent(d.Nodes), int64(d.Launch.Nodes)*100),
			d.Launch.Verified, d.Launch.Nodes, seconds(d.Launch.Elapsed), seconds(d.Launch.Limit),
		)
	}
	return ""
}

// countStages counts those on the way to Ready.
func countStages(stages []status.Stage) (ready, all int64) {
	for _, s := range stages {
		if s.AfterReady {
			continue
		}
		all++
		if s.State == status.StateReady {
			ready++
		}
	}
	return ready, all
}

func sumPercent(nodes []status.Node) (sum int64) {
	for _, n := range nodes {
		if n.Verified {
			sum += 100
			continue
		}
		sum += int64(n.Percent)
	}
	return sum
}

func seconds(s float64) string { return FormatDuration(time.Duration(s * float64(time.Second))) }

// colours are those of the headline, as ECMA-48 SGR parameters: bold, foreground, background. Text on them says the
// same in words.
var colours = map[status.Level]string{
	status.LevelBad:  "1;37;41",
	status.LevelBusy: "30;43",
	status.LevelGood: "30;42",
}

// paint fills a line of so many columns with text on a level's colour.
func paint(l status.Level, text string, width int) string {
	text = shorten(text, width)
	return "\x1b[" + colours[l] + "m" + text + strings.Repeat(" ", width-len([]rune(text))) + "\x1b[0m"
}

// RenderQR draws a text as a QR code for a terminal whose background is dark, two rows of it in one line; nil if it is
// too long for one.
func RenderQR(text string) []string {
	code, err := qr.Encode(text, qr.L)
	if err != nil {
		return nil
	}

	const quiet = 2 // modules around it; readers manage with less than the standard's four
	light := func(x, y int) bool {
		return x < -quiet || y < -quiet || x >= code.Size+quiet || y >= code.Size+quiet || !code.Black(x, y)
	}

	var lines []string
	for y := -quiet; y < code.Size+quiet; y += 2 {
		var b strings.Builder
		for x := -quiet; x < code.Size+quiet; x++ {
			b.WriteString(halves[light(x, y)][light(x, y+1)])
		}
		lines = append(lines, b.String())
	}

	return lines
}

// halves has the character for an upper and a lower module, by whether they are light.
var halves = map[bool]map[bool]string{
	true:  {true: "█", false: "▀"},
	false: {true: "▄", false: " "},
}
