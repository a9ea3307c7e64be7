package api

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/artifacts.md names every path and status of the API.
func TestDocumentationIsOfThisCode(t *testing.T) {
	text, err := os.ReadFile("../../../docs/artifacts.md")
	require.NoError(t, err)
	docs := string(text)

	_, answers, found := strings.Cut(docs, "## Answers\n")
	require.True(t, found)
	answers, _, _ = strings.Cut(answers, "\n## ")
	statuses := map[int]bool{}
	for _, rt := range routeTable() {
		last := rt.path[strings.LastIndex(strings.TrimSuffix(rt.path, "/content"), "/"):]
		assert.Regexp(t, "`[^|]*"+rt.method+"[^|]*"+regexp.QuoteMeta(last)+"|"+regexp.QuoteMeta(last)+"`", answers, "%s %s", rt.method, rt.path)
		for _, s := range rt.success {
			statuses[s.status] = true
		}
		for _, s := range rt.failures {
			statuses[s] = true
		}
	}
	for s := range statuses {
		if s != 412 && s != 416 { // of conditions and ranges, as everywhere
			assert.Contains(t, answers, strconv.Itoa(s))
		}
	}
}
