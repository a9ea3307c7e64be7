package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pages walk through the code by its names.
var pages = []string{"architecture.md", "words.md"}

var (
	codeSpan  = regexp.MustCompile("`([^`\n]+)`")
	treePath  = regexp.MustCompile(`^(assets|cmd|daemon|docs|image|overlays|pxe|scripts)(/[\w.-]+)+/?$`)
	qualified = regexp.MustCompile(`^[a-z]\w*(\.[A-Za-z]\w*){1,2}$`)
	dataFile  = regexp.MustCompile(`\.(cfg|conf|ini|img|json|jsonl|yaml)$`)
)

// reference is a name on the page that must exist in the tree: a path, or a declaration as package.Name or
// package.Type.Method.
type reference struct {
	path string
	name string
}

// references reads the names out of a page. Commands, addresses and files of data are none.
func references(text string) (all []reference) {
	for _, m := range codeSpan.FindAllStringSubmatch(text, -1) {
		switch span := m[1]; {
		case treePath.MatchString(span):
			all = append(all, reference{path: span})
		case qualified.MatchString(span) && !dataFile.MatchString(span):
			all = append(all, reference{name: span})
		}
	}
	return all
}

// declared are the names of all declarations of the module, as package.Name and package.Type.Method.
func declared(t *testing.T) map[string]bool {
	names := map[string]bool{}
	walk(t, func(p, rel string) error {
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		pkg := f.Name.Name
		if pkg == "main" {
			pkg = path.Base(path.Dir(rel))
		}
		for _, d := range f.Decls {
			for _, name := range declarationNames(d) {
				names[pkg+"."+name] = true
			}
		}
		return nil
	})
	return names
}

// declarationNames are the names that one declaration gives, a method's with its type's before it. The methods of
// an interface count as well.
func declarationNames(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		return []string{receiverName(d.Recv.List[0].Type) + "." + d.Name.Name}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
				names = append(names, memberNames(s)...)
			case *ast.ValueSpec:
				for _, n := range s.Names {
					names = append(names, n.Name)
				}
			}
		}
	}
	return names
}

// memberNames are the fields of a struct and the methods of an interface, with the type's name before them.
func memberNames(s *ast.TypeSpec) (names []string) {
	var fields *ast.FieldList
	switch of := s.Type.(type) {
	case *ast.StructType:
		fields = of.Fields
	case *ast.InterfaceType:
		fields = of.Methods
	default:
		return nil
	}
	for _, f := range fields.List {
		for _, n := range f.Names {
			names = append(names, s.Name.Name+"."+n.Name)
		}
	}
	return names
}

func receiverName(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiverName(of.X)
	case *ast.IndexExpr:
		return receiverName(of.X)
	case *ast.Ident:
		return of.Name
	}
	return ""
}

// What a page names was moved or renamed without the page if this fails.
func TestPagesNameWhatIsThere(t *testing.T) {
	names := declared(t)
	require.True(t, names["pxe.Booter.Boot"], "the tree was not read")
	for _, page := range pages {
		paths, functions := 0, 0
		for _, r := range references(readPage(t, page)) {
			if r.path != "" {
				paths++
				_, err := os.Stat(filepath.Join("../..", filepath.FromSlash(r.path)))
				assert.NoError(t, err, "docs/%s names %s", page, r.path)
				continue
			}
			functions++
			assert.True(t, names[r.name], "docs/%s names %s, which is declared nowhere", page, r.name)
		}
		assert.Greater(t, paths, 15, "docs/%s was not read", page)
		assert.Greater(t, functions, 30, "docs/%s was not read", page)
	}
}

// A newcomer finds every room of the daemon on the first page.
func TestArchitecturePageShowsTheRooms(t *testing.T) {
	text := readPage(t, "architecture.md")
	for _, floor := range floors {
		for _, room := range floor {
			assert.Contains(t, text, "`"+room+"`", "docs/architecture.md does not show the room %s", room)
		}
	}
}

func readPage(t *testing.T, name string) string {
	text, err := os.ReadFile("../../docs/" + name)
	require.NoError(t, err)
	return string(text)
}

func TestReferencesAreSeen(t *testing.T) {
	for text, want := range map[string][]reference{
		"`site.Load` reads `site.yaml`":             {{name: "site.Load"}},
		"`metal3.Hosts.Boot`, `daemon/metal`":       {{name: "metal3.Hosts.Boot"}, {path: "daemon/metal"}},
		"`firstlightd status`, `/var/lib/ironic`":   nil,
		"`docs/bringup.md` and `daemon/plan.go`":    {{path: "docs/bringup.md"}, {path: "daemon/plan.go"}},
		"without marks site.Load and daemon/metal":  nil,
		"`hosts.ini`, `catalog.json`, `grub.cfg`":   nil,
		"`daemon.setVerifiedLabel` is not exported": {{name: "daemon.setVerifiedLabel"}},
	} {
		assert.Equal(t, want, references(text), text)
	}
}

// TestPagesNameTestsThatAreThere: a page that says what a test shows names one that is there.
func TestPagesNameTestsThatAreThere(t *testing.T) {
	tests := declaredTests(t)
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	decisions, err := filepath.Glob("../../docs/decisions/*.md")
	require.NoError(t, err)
	for _, page := range append(append(pages, decisions...), "../../README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		named := namedTests(string(text))
		for _, name := range named {
			assert.True(t, tests[name], "%s names %s, which is no test", page, name)
		}
		if filepath.Base(page) == "security.md" {
			assert.Greater(t, len(named), 50, "docs/security.md was not read")
		}
	}
}

// TestTheTableOfNetworksHasNoGap: each cell of network, firmware and way has its test, or says why there is none.
func TestTheTableOfNetworksHasNoGap(t *testing.T) {
	_, table, found := strings.Cut(readPage(t, "pxe.md"), "\n| the provisioning network |")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(strings.TrimSpace(table), "\n")
	ways := strings.Count(rows[0], "|")
	require.Greater(t, len(rows), 8, "the table was not read")
	noReason := regexp.MustCompile(`not tried(?:$|[^:;,])`)
	for _, row := range rows[2:] {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		require.Len(t, cells, ways+1, row)
		for i, cell := range cells[1:] {
			switch {
			case cell == "the same":
				assert.Positive(t, i, "%s: the same as what?", cells[0])
			case len(namedTests(cell)) == 0:
				assert.Greater(t, len(strings.Fields(cell)), 1, "%s: neither a test nor a reason: %q", cells[0], cell)
			}
			assert.NotRegexp(t, noReason, cell, cells[0])
		}
	}
}

// namedTests are the tests that a text names.
func namedTests(text string) (names []string) {
	for _, m := range regexp.MustCompile("`((?:[Tt]est|Fuzz|Benchmark)[A-Z]\\w+)[`/]").FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}

// declaredTests are the tests of the tree, methods of a suite among them.
func declaredTests(t *testing.T) map[string]bool {
	declaration := regexp.MustCompile(`(?m)^func (?:\(\w+ \*?\w+\) )?((?:[Tt]est|Fuzz|Benchmark)[A-Z]\w+)\(`)
	tests := map[string]bool{}
	forEachTestFile(t, func(_, text string) {
		for _, m := range declaration.FindAllStringSubmatch(text, -1) {
			tests[m[1]] = true
		}
	})
	return tests
}
