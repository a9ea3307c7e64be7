package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unlimited are the files that make an HTTP server other than pxe/limit, with the reason.
var unlimited = map[string]string{
	"pxe/limit/limit.go":                             "it is what bounds the others",
	"image/lab/bmc/bmc.go":                           "a socket in the folder of a virtual rack, for one program of its own",
	"image/lab/redfish/redfish.go":                   "a BMC of a rack, for the rack's own appliance",
	"image/lab/virtualrack/control.go":               "the same; its connections are passed on and may pause",
	"image/lab/testbed/sandbox/nodes/mirror/main.go": "a test's",
	"image/lab/simulator/network.go":                 "a BMC of a simulated rack, for the rack's own appliance",
	"image/lab/testbed/fakeservers/main.go":          "a test's",
}

// TestEveryHTTPServerIsLimited: what serves HTTP bounds what its clients can hold.
func TestEveryHTTPServerIsLimited(t *testing.T) {
	found := map[string]bool{}
	walk(t, func(p, rel string) error {
		file, err := parser.ParseFile(token.NewFileSet(), p, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			of, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, isPackage := of.X.(*ast.Ident)
			names := []string{"Server", "Serve", "ServeTLS", "ListenAndServe", "ListenAndServeTLS"}
			if isPackage && x.Name == "http" && slices.Contains(names, of.Sel.Name) {
				found[rel] = true
			}
			return true
		})
		return nil
	})
	require.True(t, found["pxe/limit/limit.go"], "the tree was not read")
	for file := range found {
		assert.NotEmpty(t, unlimited[file], "%s serves HTTP without limits; use pxe/limit", file)
	}
	for file := range maps.Keys(unlimited) {
		assert.True(t, found[file], "%s serves no HTTP any more: take it off the list", file)
	}
}
