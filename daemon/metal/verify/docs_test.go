package verify

import (
	"fmt"
	"strings"
	"testing"

	"firstlight.dev/firstlight/assets/goldentest"
)

// TestDocs keeps the lists of docs/verify.md equal to the checks that are asked.
func TestDocs(t *testing.T) {
	for name, rows := range map[string]string{"preflight": rows(preflight), "proof": rows(verificationChecks)} {
		goldentest.CheckPart(t, "../../../docs/verify.md", name, "| check | holds when |\n|---|---|\n"+rows)
	}
}

func rows[F any](list []check[F]) string {
	var b strings.Builder
	for _, c := range list {
		fmt.Fprintf(&b, "| `%s` | %s |\n", c.Name, c.Asks)
	}
	return b.String()
}
