package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// printedBy is the line before a block of output that no test writes into its page: which test printed it, and when if
// it differs from run to run.
var printedBy = regexp.MustCompile("^<!-- printed by (Test[A-Za-z0-9]+|make demo)( on 20[0-9]{2}-[0-9]{2}-[0-9]{2})? -->$")

// TestOutputInPagesWasPrinted: a block of a page is input, which has its language; or a test writes it, between begin
// and end; or it says which test printed it, and that test's package reads the page. `make demo` is no test, and must
// say when. Lines of a log that someone copied have the language log, and a sentence that says whose they are.
func TestOutputInPagesWasPrinted(t *testing.T) {
	tests := testNames(t)
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	marked := 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		before, inside, generated := "", false, false
		for i, line := range strings.Split(string(text), "\n") {
			generated = (generated || strings.HasPrefix(line, "<!-- begin ")) && !strings.HasPrefix(line, "<!-- end")
			if language, isFence := strings.CutPrefix(line, "```"); isFence && !generated {
				if inside = !inside; inside && (language == "" || language == "text") {
					source := printedBy.FindStringSubmatch(before)
					if assert.NotNil(t, source, "%s:%d: output without `<!-- printed by TEST -->`, or input without its language", page, i+1) {
						marked++
						reads := strings.Contains(tests[source[1]], filepath.Base(page))
						assert.True(t, reads || source[1] == "make demo" && source[2] != "",
							"%s:%d: %s: no such test, or it does not read the page", page, i+1, before)
					}
				}
			}
			before = line
		}
		assert.False(t, inside, page)
	}
	assert.Greater(t, marked, 10, "the pages were not read")
}

// written is a block that a test compares or writes: the path of the page, and the block's name.
var written = regexp.MustCompile(`goldentest\.(?:Check|Write)(?:Block|Table)\(t, "([^"]+)", "([^"]+)"`)

// TestBlocksThatTestsWriteAreOnTheirPages: a test that runs for hours finds at its end where its output belongs.
func TestBlocksThatTestsWriteAreOnTheirPages(t *testing.T) {
	seen := 0
	forEachTestFile(t, func(path, text string) {
		for _, block := range written.FindAllStringSubmatch(text, -1) {
			seen++
			page, err := os.ReadFile(filepath.Join(filepath.Dir(path), block[1]))
			if assert.NoError(t, err, path) {
				begin := "<!-- begin " + block[2] + " -->\n```\n"
				assert.True(t, strings.Contains(string(page), begin), "%s: %s has no block %s", path, block[1], block[2])
			}
		}
	})
	assert.Greater(t, seen, 4, "the tests were not read")
}

// testNames are the tests of the tree, each with the text of the test files of its package.
func testNames(t *testing.T) map[string]string {
	names, packages := map[string]string{}, map[string]string{}
	test := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	forEachTestFile(t, func(path, text string) {
		packages[filepath.Dir(path)] += text
		for _, found := range test.FindAllStringSubmatch(text, -1) {
			names[found[1]] = filepath.Dir(path)
		}
	})
	for name, dir := range names {
		names[name] = packages[dir]
	}
	return names
}

// forEachTestFile calls read with the path and the text of every test file of the tree.
func forEachTestFile(t *testing.T, read func(path, text string)) {
	t.Helper()
	for _, room := range []string{"assets", "cmd", "daemon", "image", "pxe", "docs"} {
		require.NoError(t, filepath.WalkDir("../../"+room, func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			read(path, string(text))
			return err
		}))
	}
}
