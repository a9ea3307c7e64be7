// Package mutants holds faults put in by hand, one at a time: each is a change of one file that compiles, and a test of
// the room that it is in must fail with it. Its tests run them (`make mutants`) and hold that what is changed is there.
package mutants

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Mutant is one fault.
type Mutant struct {
	Name    string // what is wrong then
	File    string // below the top of the tree
	Old     string // stands once in File
	New     string // in its place
	Package string // whose tests must fail, such as ./pxe/lease
	Run     string // of these tests; "": all
	Kinds   string // value of FIRSTLIGHT_TEST that they need; "": none
}

// Packages whose tests must fail.
const (
	lease     = "./pxe/lease"
	dhcp      = "./pxe/dhcp"
	tftp      = "./pxe/tftp"
	metal3    = "./daemon/metal/metal3"
	bundle    = "./daemon/appliance/supportbundle"
	installer = "./daemon/clusters/installer"
	operator  = "./daemon/clusters/bpa/operator"
	bringup   = "./daemon/engine/bringup"
	gate      = "./daemon/metal/agentgate"
)

const top = "../.."

func all() []Mutant {
	return slices.Concat(Network(), Metal(), Clusters(), Appliance(), Security(), Signing(), Updates())
}

// mutate is the file with its fault.
func mutate(t *testing.T, m Mutant) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, m.File))
	require.NoError(t, err, m.Name)
	require.Equal(t, 1, strings.Count(string(text), m.Old), "%s: %s has %q", m.Name, m.File, m.Old)
	return strings.Replace(string(text), m.Old, m.New, 1)
}

// TestMutantsFit: what a mutant changes is in the tree, once, and is Go afterwards. Whoever changes that line changes the
// mutant.
func TestMutantsFit(t *testing.T) {
	names := map[string]bool{}
	for _, m := range all() {
		assert.False(t, names[m.Name], "%s: twice", m.Name)
		names[m.Name] = true
		assert.NotEqual(t, m.Old, m.New, m.Name)
		assert.DirExists(t, filepath.Join(top, m.Package), m.Name)
		_, err := parser.ParseFile(token.NewFileSet(), m.File, mutate(t, m), parser.SkipObjectResolution)
		assert.NoError(t, err, m.Name)
	}
}

// TestNoMutantSurvives runs the tests of a package with each fault in the place of the file (go build -overlay: the tree
// is not touched). They must fail, and not by a fault that does not compile.
func TestNoMutantSurvives(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), "mutants") {
		t.Skip("runs the tests of a package for each fault, an hour in all; run with FIRSTLIGHT_TEST=mutants")
	}
	dir, err := filepath.Abs(top)
	require.NoError(t, err)
	for _, m := range all() {
		t.Run(m.Name, func(t *testing.T) {
			scratch := t.TempDir()
			file, overlay := filepath.Join(scratch, "mutant.go"), filepath.Join(scratch, "overlay.json")
			require.NoError(t, os.WriteFile(file, []byte(mutate(t, m)), 0o600))
			text, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(dir, m.File): file}})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(overlay, text, 0o600))

			args := []string{"test", "-count=1", "-failfast", "-timeout=20m", "-overlay=" + overlay}
			if m.Run != "" {
				args = append(args, "-run="+m.Run)
			}
			cmd := exec.CommandContext(t.Context(), "go", append(args, m.Package)...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "FIRSTLIGHT_TEST="+m.Kinds)
			out, err := cmd.CombinedOutput()
			said := string(out)
			require.NotContains(t, said, "[build failed]", "it is no Go:\n%s", said)
			require.NotContains(t, said, "[setup failed]", said)
			require.Error(t, err, "no test of %s notices it:\n%s", m.Package, said)
			failed := slices.DeleteFunc(strings.Split(said, "\n"), func(line string) bool {
				return !strings.Contains(line, "--- FAIL: ") && !strings.HasPrefix(line, "panic:")
			})
			require.NotEmpty(t, failed, said)
			t.Log(strings.Join(failed, "\n"))
		})
	}
}
