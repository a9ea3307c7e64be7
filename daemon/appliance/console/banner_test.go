package console

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
)

// withoutColours is a line in plain text.
func withoutColours(line string) string {
	for _, c := range colours {
		line = strings.ReplaceAll(line, "\x1b["+c+"m", "")
	}
	return strings.ReplaceAll(line, "\x1b[0m", "")
}

// TestTheHeadlineIsColoured: red if it needs a person, yellow while it is on its way, green otherwise; as wide as the
// screen, and with the same words as without colours.
func TestTheHeadlineIsColoured(t *testing.T) {
	running := fifty(0)
	running.Launch = status.Launch{State: status.LaunchRunning, Nodes: 50, Verified: 20}
	installing := fifty(0)
	installing.Clusters = []status.Cluster{{Name: "edge", State: status.ClusterInstalling}}
	for _, c := range []struct {
		want string
		d    status.Document
	}{
		{"\x1b[1;37;41m", fifty(8)},
		{"\x1b[30;43m", running},
		{"\x1b[30;43m", installing},
		{"\x1b[30;42m", fifty(0)},
	} {
		d := c.d
		first := composeScreen(d, now, 80, 25)[0]
		assert.Contains(t, first, c.want)
		assert.Len(t, []rune(withoutColours(first)), 80)
		assert.Contains(t, first, Headline(d))
	}
}

// TestTheScreenSaysHowFarItIs: stages first, then nodes, then nothing.
func TestTheScreenSaysHowFarItIs(t *testing.T) {
	coming := documents()["2-waiting"]
	assert.Equal(t, "bring-up [###############---------------] 2 of 4 stages", progressText(coming))

	running := fifty(0)
	running.Launch = status.Launch{State: status.LaunchRunning, Nodes: 4, Verified: 1, Elapsed: 600, Limit: 3600}
	running.Nodes = []status.Node{{Verified: true}, {Percent: 60}, {Percent: 40}, {}}
	assert.Equal(t, "nodes    [###############---------------] 1 of 4 proven; 10 min of 1 h 0 min", progressText(running))
	assert.Equal(t, progressText(running), composeScreen(running, now, 80, 25)[1])
	assert.Empty(t, progressText(fifty(0)), "all are verified")
}

// TestAScreenWithRoomShowsThePage as a QR code, and what needs a person stays on it.
func TestAScreenWithRoomShowsThePage(t *testing.T) {
	d := fifty(8)
	d.Page = "https://10.10.110.20/"
	for _, size := range [][2]int{{80, 25}, {100, 37}, {128, 48}, {240, 67}} {
		lines := composeScreen(d, now, size[0], size[1])
		assert.LessOrEqual(t, len(lines), size[1], "%v", size)
		for _, line := range lines {
			assert.LessOrEqual(t, len([]rune(withoutColours(line))), size[0])
		}

		text := strings.Join(lines, "\n")
		assert.Contains(t, text, "node node-a")
		assert.Equal(t, size[1] >= codeHeight, strings.Contains(text, "The rack in a browser: "+d.Page), "%v", size)
	}
}

// TestTheCodeIsSquare: as many modules up as across, a light margin, and the three marks by which readers find it.
func TestTheCodeIsSquare(t *testing.T) {
	lines := RenderQR("https://10.10.110.20/")
	require.NotEmpty(t, lines)
	columns := len([]rune(lines[0]))
	assert.Equal(t, (columns+1)/2, len(lines))
	assert.Equal(t, strings.Repeat("█", columns), lines[0])

	mark := []string{" ▄▄▄▄▄ ", " █   █ ", " █▄▄▄█ "}
	for i, want := range mark {
		row := []rune(lines[1+i])
		assert.Equal(t, want, string(row[2:9]))
		assert.Equal(t, want, string(row[columns-9:columns-2]))
	}
	assert.Nil(t, RenderQR(strings.Repeat("x", 5000)), "too long for a code")
}
