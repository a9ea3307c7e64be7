package site

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
)

const docsFile = "../../docs/site.md"

func mustRead(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	return data
}

// TestDocs keeps the parts of docs/site.md between begin and end equal to what the code
// says; -update writes them. The part called import is kept by package icn.
func TestDocs(t *testing.T) {
	parts := regexp.MustCompile(`<!-- begin (.*?) -->`).FindAllStringSubmatch(string(mustRead(t, docsFile)), -1)
	require.Len(t, parts, 7)
	for _, part := range parts {
		switch name := part[1]; {
		case name == "reference":
			goldentest.CheckPart(t, docsFile, name, reference())
		case name == "wrong":
			goldentest.CheckPart(t, docsFile, name, wrong(t))
		case strings.HasPrefix(name, "file "):
			file := mustRead(t, filepath.Join("../..", strings.TrimPrefix(name, "file ")))
			goldentest.CheckPart(t, docsFile, name, "```yaml\n"+string(file)+"```\n")
		default:
			assert.Equal(t, "import", name)
		}
	}
}

// TestDiscoveryPage: the sites of some ten lines that docs/discovery.md shows validate.
func TestDiscoveryPage(t *testing.T) {
	page := string(mustRead(t, "../../docs/discovery.md"))
	for _, file := range []string{"testdata/valid/discover.yaml", "testdata/valid/discover-leases.yaml"} {
		assert.Contains(t, page, "assets/site/"+file+" -->\n```yaml\n"+string(mustRead(t, file))+"```\n")
	}
}

func reference() string {
	var b strings.Builder
	b.WriteString("| field | type | default | meaning |\n|---|---|---|---|\n")
	cell := strings.NewReplacer("|", "\\|")
	for _, f := range Fields() {
		if same := alike(f.Path)[0]; same != f.Path {
			continue // the same struct is in the table already
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Path, cell.Replace(f.Type), cell.Replace(f.Default), cell.Replace(f.Meaning))
	}
	return b.String()
}

func wrong(t *testing.T) string {
	var b strings.Builder
	for i, file := range wrongFiles(t) {
		_, problems := Load("site.yaml", mustRead(t, file))
		title := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file)[3:], ".yaml"), "-", " ")
		fmt.Fprintf(&b, "%d. %s\n\n```yaml\n%s```\n\n```\n%s\n```\n\n", i+1, title, mustRead(t, file), problems)
	}
	return b.String()
}

// TestPure holds that the document knows neither side it connects and reads nothing by itself.
func TestPure(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	decoder, err := filepath.Glob("../yamldoc/*.go")
	require.NoError(t, err)
	require.NotEmpty(t, decoder)
	for _, file := range append(files, decoder...) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range f.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			if path != "firstlight.dev/firstlight/assets/yamldoc" {
				assert.NotContains(t, path, "firstlight.dev/firstlight/", file)
			}
			assert.NotContains(t, []string{"os", "os/exec", "net/http", "io/ioutil", "syscall"}, path, file)
		}
	}
}
