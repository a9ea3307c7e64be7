package firmware

import (
	"fmt"
	"testing"

	"firstlight.dev/firstlight/assets/goldentest"
)

// What is not carried is on the page for people, with its reason.
func TestThePageNamesWhatIsLacking(t *testing.T) {
	table := "| file | for | why |\n|---|---|---|\n"
	for _, l := range lacking {
		table += fmt.Sprintf("| `%s` | %s | %s |\n", l.name, l.device, l.reason)
	}
	goldentest.CheckPart(t, "../../docs/hardware.md", "lacking", table)
}
