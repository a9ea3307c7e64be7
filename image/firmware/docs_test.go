package firmware

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the table of docs/hardware.md")

// What is not carried is on the page for people, with its reason.
func TestThePageNamesWhatIsLacking(t *testing.T) {
	const page = "../../docs/hardware.md"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), "<!-- begin lacking -->\n")
	require.True(t, ok)
	_, after, ok := strings.Cut(rest, "<!-- end -->")
	require.True(t, ok)

	table := "| file | for | why |\n|---|---|---|\n"
	for _, l := range lacking {
		table += fmt.Sprintf("| `%s` | %s | %s |\n", l.name, l.device, l.reason)
	}

	want := before + "<!-- begin lacking -->\n" + table + "<!-- end -->" + after
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	assert.Equal(t, want, string(text), "run: go test ./image/firmware -update")
}
