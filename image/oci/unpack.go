package oci

import (
	"fmt"
	"os"
	"path"
	"strings"

	"firstlight.dev/firstlight/assets/layer"
	"firstlight.dev/firstlight/image/tree"
)

// unpack puts a layer's archive into a tree the way package layer reads it.
func unpack(t *tree.Tree, dir, archive string) error {
	fail := func(err error) error { return fmt.Errorf("unpack layer %s: %w", path.Base(dir), err) }
	// Programs with another user's rights lie in it: nobody but root shall reach them.
	if err := t.Mkdir(path.Dir(dir), "container images"); err != nil {
		return fail(err)
	}

	t.Get(path.Dir(dir)).Perm = 0o700
	f, err := os.Open(archive)
	if err != nil {
		return fail(err)
	}
	defer f.Close()

	headers, contents, err := layer.Split(f)
	if err != nil {
		return fail(err)
	}

	for name, text := range map[string][]byte{layer.Headers: headers, layer.Contents: contents} {
		if err := t.File(path.Join(dir, name), 0o644, tree.Bytes(text), "container images"); err != nil {
			return fail(err)
		}
	}

	files := path.Join(dir, layer.Files)
	if err := t.AddTarBelow(files, archive, "container images"); err != nil {
		return fail(err)
	}
	if err := t.Mkdir(files, "container images"); err != nil { // of an empty archive
		return fail(err)
	}

	return markRemoved(t, files)
}

// Names in a layer by which it removes files of the layers below it (OCI image specification, layer.md).
const (
	removes       = ".wh."
	removesOthers = ".wh..wh..opq"
)

// markRemoved says what a layer removes as overlayfs wants it said.
func markRemoved(t *tree.Tree, dir string) error {
	var names []string
	t.Filter(func(p string) bool {
		found := strings.HasPrefix("/"+p, dir+"/") && strings.HasPrefix(path.Base(p), removes)
		if found {
			names = append(names, p)
		}
		return !found
	})
	for _, p := range names {
		at, name := path.Split(p)
		if name == removesOthers {
			t.Get(at).Xattrs = map[string]string{"trusted.overlay.opaque": "y"}
			continue
		}

		gone := &tree.Node{Type: tree.Char, From: "container images"} // device 0:0
		if err := t.Put(at+strings.TrimPrefix(name, removes), gone); err != nil {
			return err
		}
	}

	return nil
}
