package verify

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the lists of docs/verify.md")

// TestDocs keeps the lists of docs/verify.md equal to the checks that are asked.
func TestDocs(t *testing.T) {
	const file = "../../../docs/verify.md"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	have := string(text)
	for name, rows := range map[string]string{"preflight": rows(preflight), "proof": rows(verificationChecks)} {
		part := regexp.MustCompile(`(?s)<!-- begin ` + name + ` -->\n.*?<!-- end -->`)
		require.True(t, part.MatchString(have), "docs/verify.md has no list %s", name)
		have = part.ReplaceAllLiteralString(have, "<!-- begin "+name+" -->\n| check | holds when |\n|---|---|\n"+rows+"<!-- end -->")
	}
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(have), 0o644))
		return
	}
	assert.Equal(t, have, string(text), "run go test ./daemon/metal/verify -update")
}

func rows[F any](list []check[F]) string {
	var b strings.Builder
	for _, c := range list {
		fmt.Fprintf(&b, "| `%s` | %s |\n", c.Name, c.Asks)
	}
	return b.String()
}
