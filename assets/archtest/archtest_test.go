// Package archtest holds what must stay true of the tree as a whole: which package may
// import which, and that every package says what it is for.
package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// domain is of the module, and of the keys of its labels.
const (
	domain = "firstlight.dev"
	module = domain + "/firstlight"
)

// source is one package of the module, by its folder below the root.
type source struct {
	dir     string
	name    string
	docs    []string            // package comments of its files
	imports map[string][]string // of this module, by folder: the files that do
	testing bool                // it imports the standard library's testing
}

// walk shows every Go file of the module, by where it is and by its name below the root; files of tests are
// left out.
func walk(t *testing.T, do func(p, rel string) error) {
	walkWithTests(t, func(p, rel string) error {
		if strings.HasSuffix(p, "_test.go") {
			return nil
		}
		return do(p, rel)
	})
}

// walkWithTests is walk with the files of tests.
func walkWithTests(t *testing.T, do func(p, rel string) error) {
	root := "../.."
	require.FileExists(t, filepath.Join(root, "go.mod"))
	require.NoError(t, filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		if d.IsDir() {
			_, nested := os.Stat(filepath.Join(p, "go.mod"))
			if rel != "." && (nested == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || rel == "bin" || rel == "build") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		return do(p, filepath.ToSlash(rel))
	}))
}

// sources reads every package of the module.
func sources(t *testing.T) []source {
	all := map[string]*source{}
	walk(t, func(p, rel string) error {
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		dir := path.Dir(rel)
		s := all[dir]
		if s == nil {
			s = &source{dir: dir, name: f.Name.Name, imports: map[string][]string{}}
			all[dir] = s
		}
		if f.Doc != nil {
			s.docs = append(s.docs, f.Doc.Text())
		}
		s.testing = s.testing || slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing"` })
		for _, i := range imported(f) {
			s.imports[i] = append(s.imports[i], rel)
		}
		return nil
	})
	require.Contains(t, all, "daemon/engine/bringup", "the tree was not read")
	var list []source
	for _, dir := range slices.Sorted(maps.Keys(all)) {
		list = append(list, *all[dir])
	}
	return list
}

func imported(f *ast.File) []string {
	var dirs []string
	for _, i := range f.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		if rest, ok := strings.CutPrefix(p, module+"/"); ok {
			dirs = append(dirs, rest)
		}
	}
	return dirs
}

// floors are the rooms of the daemon from the ground up. A package imports its own room's ground and floors below.
var floors = [][]string{
	{"daemon/engine"},
	{"daemon/appliance"},
	{"daemon/metal", "daemon/uploads"},
	{"daemon/addons", "daemon/clusters"},
	{"daemon/page"}, // it shows what all rooms below it say
	{"daemon"},
}

// pairs are the imports between the packages of one room: who may import whom. What is not here is passed in by
// plan.go and daemon.go.
var pairs = map[string][]string{
	// A stage of the plan that applies objects.
	"daemon/engine/apply": {"daemon/engine/bringup"},
	// Rights are objects that are applied.
	"daemon/engine/rights": {"daemon/engine/apply"},
	// A pod of the daemon's own binary is critical, as apply has it.
	"daemon/engine/daemonpod": {"daemon/engine/apply"},
	// The vault holds the authority.
	"daemon/appliance/vault": {"daemon/appliance/ca"},
	// Kubernetes' own authorities are replaced in the stages of any authority.
	"daemon/appliance/kube": {"daemon/appliance/ca"},
	// The key of DATA is sealed to the machine.
	// The firmware's keys are enrolled before DATA is made, and its seal depends on them.
	"daemon/appliance/storage": {"daemon/appliance/bootchain", "daemon/appliance/tpm"},
	// An update is refused that this machine would not start.
	"daemon/appliance/stickupdate": {"daemon/appliance/bootchain"},
	// Packages are beside what boots, at the same port.
	"daemon/metal/mirror": {"daemon/metal/netboot", "daemon/metal/packages", "daemon/metal/registry"},
	// What installs nodes puts the others together.
	"daemon/metal/provisioning": {
		"daemon/metal/agentgate", "daemon/metal/bmctrust", "daemon/metal/ironic", "daemon/metal/metal3", "daemon/metal/mirror",
		"daemon/metal/netboot", "daemon/metal/standinbmc", "daemon/metal/unknown", "daemon/metal/verify",
	},
	// What blocks a node, and what may switch it on, is decided in metal3; what a BMC may be told, in bmctrust.
	"daemon/metal/verify": {"daemon/metal/bmctrust", "daemon/metal/metal3"},
	// Whether a BMC takes a login is asked in one place, so that no account is locked.
	"daemon/metal/discovery":   {"daemon/metal/verify"},
	"daemon/metal/bmcpassword": {"daemon/metal/verify"},
	// The API serves what the store holds.
	"daemon/uploads/api": {"daemon/uploads/blobs"},
	// The same artifacts by another protocol, to the same people.
	"daemon/uploads/s3api": {"daemon/uploads/blobs", "daemon/uploads/api"},
	// The registry gets what is complete in the store, which is told what became of it.
	"daemon/uploads/containers": {"daemon/uploads/blobs"},
	// An uploaded package has the name that the repository reads from it.
	"daemon/uploads/publish": {"daemon/metal/packages"},
	// Plugins of the node's network begin and end alike: a program that the kubelet's runtime calls, and an agent.
	"daemon/addons/multus": {"daemon/addons/cniprogram", "daemon/addons/removal"},
	"daemon/addons/sriov":  {"daemon/addons/cniprogram", "daemon/addons/devices"},
	"daemon/addons/policy": {"daemon/addons/removal"},
	// The agent prepares what the plugin hands out.
	"daemon/addons/sriovnodes": {"daemon/addons/cniprogram", "daemon/addons/devices", "daemon/addons/sriov"},
	// KVM is a device that pods ask for.
	"daemon/addons/machines": {"daemon/addons/devices"},
	// Networks of OVN are rows of its databases; those with Nodus' objects lie on them.
	"daemon/addons/ovn": {"daemon/addons/ovsdb", "daemon/addons/removal"},
	"daemon/addons/ovn4nfv": {
		"daemon/addons/cniprogram", "daemon/addons/ovn", "daemon/addons/ovsdb", "daemon/addons/removal",
	},
	// The operator and an installer meet in what both must keep.
	"daemon/clusters/bpa":       {"daemon/clusters/contract"},
	"daemon/clusters/installer": {"daemon/clusters/contract"},
	// Whoever uses a cluster's kubeconfig reads it as the installer does.
	"daemon/clusters/kpa":            {"daemon/clusters/contract"},
	"daemon/clusters/metal3provider": {"daemon/clusters/contract"},
	// Tenants are shown as their controller has them, service chains as their parts count.
	"daemon/clusters/workload": {"daemon/clusters/contract", "daemon/addons/tenants", "daemon/addons/chain"},
	// Clusters of Cluster API are tried as the installer tries its own.
	"daemon/clusters/clusterapi": {"daemon/clusters/contract"},
}

// isTestCode reports whether a package stands with the tests although its files are not called _test.go, because
// tests of several packages share it: the fixtures of the lab's testbed, what is named *test, and the harness of
// benchmarks. It may import testing and the daemon, and only tests and other test code import it.
func isTestCode(dir string) bool {
	return strings.HasPrefix(dir, "image/lab/testbed/") || strings.HasSuffix(dir, "test") || dir == "assets/bench"
}

// forbidden says why package from may not import package to; "" if it may.
func forbidden(from, to string) string {
	room, target := first(from), first(to)
	switch {
	case (room == "image" && target == "daemon" || room == "daemon" && target == "image") && !isTestCode(from):
		return "the builder and the daemon share only assets"
	case room == "pxe" && (target == "image" || target == "daemon"):
		return "policy enters the protocol servers through pxe.Booter alone"
	case room == "assets" && target != "assets":
		return "the contract depends on neither of its sides"
	case target == "cmd":
		return "commands are imported by nobody"
	case isTestCode(to) && !isTestCode(from):
		return "what ships knows nothing of test code"
	case room == "daemon" && target == "daemon":
		return forbiddenInDaemon(from, to)
	}
	return ""
}

func forbiddenInDaemon(from, to string) string {
	above, below := floor(from), floor(to)
	switch {
	case above < 0 || below < 0:
		return "one of them is on none of the floors of the daemon"
	case below > above:
		return "imports go down the floors of the daemon"
	case below < above:
		return ""
	case unit(from) == unit(to) || slices.Contains(pairs[unit(from)], unit(to)):
		return ""
	}
	return "packages of one floor meet in plan.go and daemon.go; pairs lists those that do not"
}

// floor is the index of the floor that a package of the daemon is on; -1 if it is on none.
func floor(dir string) int {
	for i, rooms := range floors {
		for _, room := range rooms {
			if dir == room || room != "daemon" && strings.HasPrefix(dir, room+"/") {
				return i
			}
		}
	}
	return -1
}

// unit is the package directly in a room that a package belongs to: daemon/appliance/host of
// daemon/appliance/host/timeserver.
func unit(dir string) string {
	parts := strings.SplitN(dir, "/", 4)
	return strings.Join(parts[:min(len(parts), 3)], "/")
}

func first(dir string) string { s, _, _ := strings.Cut(dir, "/"); return s }

func TestForbiddenKnowsTheArrows(t *testing.T) {
	for _, c := range []struct {
		from, to string
		allowed  bool
	}{
		{"image/disk", "daemon/appliance/host", false},
		{"daemon", "image/lab", false},
		{"daemon/appliance/host", "assets/site", true},
		{"image", "assets", true},
		{"pxe/dhcp", "daemon", false},
		{"pxe/dhcp", "pxe", true},
		{"daemon", "pxe/dhcp", true},
		{"daemon", "daemon/appliance/host", true},
		{"daemon/appliance/host", "daemon/engine/bringup", true},
		{"daemon/engine/bringup", "daemon/appliance/host", false},
		{"daemon/engine/bringup", "daemon/engine/apply", false},
		{"daemon/appliance/kube", "daemon/engine/apply", true},
		{"daemon/engine/apply", "daemon/engine/bringup", true},
		{"daemon/engine/apply", "daemon/appliance/kube", false},
		{"daemon/engine/bringup", "assets/status", true},
		{"daemon/appliance/host", "daemon/appliance/host/timeserver", true},
		{"daemon/appliance/host", "daemon/appliance/kube", false},
		{"daemon/clusters/bpa/operator", "daemon/metal/metal3", true},
		{"daemon/metal/metal3", "daemon/clusters/bpa/operator", false},
		{"daemon/metal/metal3", "daemon/uploads/blobs", false},
		{"daemon/metal/metal3", "daemon", false},
		{"daemon/page", "daemon/metal/metal3", true},
		{"daemon/page", "daemon/clusters/bpa/v1alpha1", true},
		{"daemon/clusters/bpa", "daemon/page", false},
		{"daemon/page", "daemon", false},
		{"daemon/attic", "daemon/engine/apply", false},
		{"assets/site", "image/recipe", false},
		{"daemon/appliance/host", "cmd/firstlightd", false},
		{"cmd/firstlightd", "daemon", true},
		{"image/lab/virtualrack", "image/lab/testbed/scenario", false},
		{"image/lab/testbed/scenario", "image/lab/simulator", true},
		{"daemon/uploads/api", "daemon/uploads/blobs/s3test", false},
		{"daemon/uploads/blobs/s3test", "image/lab/process", true},
		{"image", "assets/bench", false},
		{"image/lab", "daemon/metal/registry", false},
		{"image/lab/testbed/sandbox/nodes/mirror", "daemon/metal/registry", true},
		{"image/lab/testbed/sandbox", "assets/bench", true},
	} {
		assert.Equal(t, c.allowed, forbidden(c.from, c.to) == "", "%s imports %s", c.from, c.to)
	}
}

func TestImports(t *testing.T) {
	for _, s := range sources(t) {
		for to, files := range s.imports {
			if why := forbidden(s.dir, to); why != "" {
				t.Errorf("%s imports %s: %s", files[0], to, why)
			}
		}
	}
}

// A package that no command reaches is dead, or it is test code and belongs to the tests.
func TestEveryPackageIsShippedOrTestCode(t *testing.T) {
	all := map[string]source{}
	var next []string
	for _, s := range sources(t) {
		all[s.dir] = s
		if first(s.dir) == "cmd" {
			next = append(next, s.dir)
		}
	}
	require.NotEmpty(t, next, "there are no commands")

	shipped := map[string]bool{}
	for len(next) > 0 {
		dir := next[0]
		next = next[1:]
		if !shipped[dir] {
			shipped[dir] = true
			next = slices.AppendSeq(next, maps.Keys(all[dir].imports))
		}
	}
	for dir, s := range all {
		assert.NotEqual(t, isTestCode(dir), shipped[dir], "%s: a package is reached by a command or is test code", dir)
		if !isTestCode(dir) {
			assert.False(t, s.testing, "%s imports testing", dir)
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for _, s := range sources(t) {
		want := "Package " + s.name + " "
		if s.name == "main" {
			want = "Command " + path.Base(s.dir) + " "
		}
		if assert.NotEmpty(t, s.docs, "%s has no package comment", s.dir) {
			assert.Len(t, s.docs, 1, "%s says it in several files", s.dir)
			assert.True(t, strings.HasPrefix(s.docs[0], want), "the comment of %s does not begin with %q", s.dir, want)
		}
	}
}

// A key that is written twice is one day written in two ways.
func TestKeysOfLabelsAreInOneFile(t *testing.T) {
	found := 0
	walk(t, func(p, rel string) error {
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if _, imports := n.(*ast.ImportSpec); imports {
				return false
			}
			literal, isLiteral := n.(*ast.BasicLit)
			if !isLiteral || literal.Kind != token.STRING || !strings.Contains(literal.Value, domain+"/") {
				return true
			}
			if path.Dir(rel) == "assets/label" {
				found++
				return true
			}
			assert.Fail(t, "a key that assets/label does not list", "%s: %s", rel, literal.Value)
			return true
		})
		return nil
	})
	assert.Greater(t, found, 10, "the keys were not read")
}
