package discovery

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
)

// TestEveryReasonIsOnThePage: docs/discovery.md has all of them, with what is printed of an example.
func TestEveryReasonIsOnThePage(t *testing.T) {
	code, err := os.ReadFile("discovery.go")
	require.NoError(t, err)
	reasons := regexp.MustCompile(`(?m)^\tReason\w+ +Reason = "([\w-]+)"`).FindAllStringSubmatch(string(code), -1)
	require.Greater(t, len(reasons), 10, "the reasons were not read")

	other := map[Reason]string{
		ReasonBMCKnown: "node-abc1235", ReasonBMCShared: "52:54:01:00:00:02", ReasonSerialShared: "node-abc1234",
		ReasonNameTaken: "node-abc1234", ReasonWaiting: "it does not answer",
	}
	var b strings.Builder
	b.WriteString("| it says | what to do |\n|---|---|\n")
	seen := map[string]bool{}
	for _, r := range reasons {
		reason := Reason(r[1])
		m := candidate(machine(7, withSerial("ABC1234")), "node-abc1234")
		if reason == ReasonSerialNone {
			m.Serial = "To Be Filled By O.E.M."
		}
		text, fix := Finding{Machine: m, Reason: reason, Other: other[reason], Due: now.Add(30 * time.Minute)}.Text()
		if reason == ReasonNode {
			assert.Empty(t, text)
			continue
		}
		require.NotEmpty(t, text, "%s is told by no sentence", reason)
		assert.NotContains(t, text+fix, " ,", "%s: something is missing", reason)
		assert.False(t, seen[text], "%s is not told from another one: %s", reason, text)
		seen[text] = true
		if fix == "" {
			fix = "nothing"
		}
		fmt.Fprintf(&b, "| %s | %s |\n", text, fix)
	}
	goldentest.CheckPart(t, "../../../docs/discovery.md", "reasons", b.String())
}
