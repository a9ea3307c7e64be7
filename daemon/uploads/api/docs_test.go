package api

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/artifacts.md names every path and status of the API, and no test that is not there.
func TestDocumentationIsOfThisCode(t *testing.T) {
	text, err := os.ReadFile("../../../docs/artifacts.md")
	require.NoError(t, err)
	docs := string(text)

	tests := ""
	for _, dir := range []string{"..", "../../../image/lab/testbed/sandbox", "../../../image/lab/testbed/testrack"} {
		require.NoError(t, filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(p, "_test.go") {
				source, failed := os.ReadFile(p)
				tests, err = tests+string(source), failed
			}
			return err
		}))
	}
	named := regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(docs, -1)
	require.NotEmpty(t, named)
	for _, n := range named {
		assert.True(t, strings.Contains(tests, "func "+n[1]+"("), "the page names %s, which is not there", n[1])
	}

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
