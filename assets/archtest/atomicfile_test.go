package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// renames are the files outside assets/atomicfile that give a file its name by a rename, with the reason why
// atomicfile.Write does not do it.
var renames = map[string]string{
	"cmd/firstlightd/bundle.go":                "for whoever asked for it, who asks again after a power cut; it is written piece by piece",
	"daemon/uploads/client/transfer.go":        "what was fetched before a cut is gone on with",
	"daemon/uploads/blobs/folder.go":           "whatever lies in a bucket is an artifact, so what is written lies elsewhere until it is whole; and the file of an upload becomes the object",
	"daemon/uploads/s3api/parts.go":            "named by its digest, which is known when all of it is there; two may come at once",
	"daemon/uploads/publish/publish.go":        "a link to the store's own file; and whatever lies in the store's folder is an artifact, but for the scratch folder",
	"daemon/engine/bringup/journal.go":         "sets a file aside",
	"daemon/clusters/installer/installer.go":   "sets a long log aside",
	"daemon/clusters/installer/progress.go":    "worth nothing after a power cut, and written at every step",
	"daemon/metal/packages/kubernetes/pool.go": "a file with holes; in memory",
	"daemon/appliance/away/unpack.go":          "gives a folder its name when all in it is on the medium",
	"daemon/appliance/away/resume.go":          "takes that folder's name away",
	"image/cache/cache.go":                     "folders too; what is torn is built again",
	"image/disk/reuse.go":                      "an image loses its name while it is changed",
	"image/disk/write.go":                      "gigabytes, which a build need not wait for",
	"image/owner/owner.go":                     "gigabytes, synced when they are written; and not over a file that is there",
	"image/media/media.go":                     "gigabytes, which a build need not wait for",
	"image/lab/try/user.go":                    "a directory, which is synced first",
	"image/release/release.go":                 "a directory, which is easily made again",
	"pxe/capture/file.go":                      "sets the capture before aside; in memory",
	"pxe/lease/disk.go":                        "goes on appending to the very file that it gave the name",
	"daemon/metal/discovery/store.go":          "sets a torn file aside",
	"daemon/appliance/host/hostkey.go":         "the next host key takes the place of the current one; the name is synced",

	"daemon/addons/machines/launcher/disk.go": "disks of gigabytes with holes, fetched piece by piece",
	"image/install/update.go":                 "two roots of half a gigabyte change names; the name is synced",
}

// renaming is how a file may be given a name.
func renaming(f *ast.File) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			of, _ := s.X.(*ast.Ident)
			found = found || of != nil && (of.Name == "os" || of.Name == "unix" || of.Name == "syscall") && strings.HasPrefix(s.Sel.Name, "Rename")
		}
		return true
	})
	return found
}

// A file that is written beside its place and renamed is easily written without what a power cut asks for:
// the file synced before the rename, its folder after.
func TestFilesAreReplacedByOnePackage(t *testing.T) {
	found := map[string]bool{}
	walk(t, func(p, rel string) error {
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err == nil && renaming(f) {
			found[rel] = true
		}
		return err
	})
	require.True(t, found["assets/atomicfile/atomicfile.go"], "the tree was not read")
	delete(found, "assets/atomicfile/atomicfile.go")
	for file := range found {
		assert.Contains(t, renames, file, "it renames by hand; use atomicfile.Write, or say here why not")
	}
	for file := range renames {
		assert.True(t, found[file], "%s renames nothing any more", file)
	}
}

func TestRenamingIsSeen(t *testing.T) {
	for text, want := range map[string]bool{
		`package p; func f() error { return os.Rename(path+".new", path) }`:   true,
		`package p; var f = os.Rename`:                                        true,
		`package p; func f() error { return unix.Renameat2(0, a, 0, b, 0) }`:  true,
		`package p; func f() error { return os.WriteFile(path, nil, 0o644) }`: false,
		`package p; func f() error { return plan.Rename(a, b) }`:              false,
		`package p; /* os.Rename */ func f() { log.Info("os.Rename") }`:       false,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "p.go", text, 0)
		require.NoError(t, err)
		assert.Equal(t, want, renaming(f), text)
	}
}
