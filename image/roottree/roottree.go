// Package roottree makes the finished tree of a root or of a container image: packages, then the recipe's edits,
// then overlays, programs, directories and links.
package roottree

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"

	"firstlight.dev/firstlight/image/debian/install"
	"firstlight.dev/firstlight/image/recipe"
	"firstlight.dev/firstlight/image/tree"
)

// Source is where the parts of trees come from.
type Source struct {
	Top     string                   // directory of the repository
	Epoch   int64                    // no file is younger
	Program func(name string) string // file of a program of the recipe
}

// Root returns the finished tree of a root. unpacked are the tars of root.Unpack, in its order.
func (s Source) Root(root *recipe.Root, archive string, unpacked []string) (*tree.Tree, error) {
	t := tree.New(s.Epoch)
	if err := t.AddTar(archive, "packages of root "+root.Name); err != nil {
		return nil, err
	}

	for i, tar := range unpacked {
		if err := t.UnpackTar(tar, "package "+root.Unpack[i]); err != nil {
			return nil, err
		}
	}

	install.RemoveTraces(t)
	for _, glob := range root.Remove {
		t.Remove(glob)
	}

	for _, edit := range root.Replace {
		if err := t.ReplaceText(edit.Path, edit.Find, edit.With); err != nil {
			return nil, edit.Errorf("%v", err)
		}
	}

	if err := s.addContent(t, root.Overlays, root.Programs, root.Links, root.Dirs); err != nil {
		return nil, fmt.Errorf("make root %s: %w", root.Name, err)
	}

	return t, nil
}

// Image returns the finished tree of an image that has root, or nothing, below what it brings itself.
func (s Source) Image(image *recipe.Image, root *tree.Tree) (*tree.Tree, error) {
	if root == nil {
		root = tree.New(s.Epoch)
	}
	if err := s.addContent(root, image.Overlays, image.Programs, image.Links, image.Dirs); err != nil {
		return nil, fmt.Errorf("make image %s: %w", image.Name, err)
	}
	return root, nil
}

// addContent puts overlays, programs, links and directories into a tree.
func (s Source) addContent(
	t *tree.Tree, overlays []recipe.Overlay, programs, links map[string]string, dirs []string,
) error {
	for _, overlay := range overlays {
		dir := filepath.Join(s.Top, filepath.FromSlash(overlay.Dir))
		if err := t.Overlay(dir, path.Join("/", overlay.At), overlay.Replaces); err != nil {
			return err
		}
	}

	for _, name := range slices.Sorted(maps.Keys(programs)) {
		if err := t.HostFile(programs[name], 0o755, s.Program(name), "program "+name); err != nil {
			return err
		}
	}

	for _, dir := range dirs {
		if err := t.Mkdir(dir, "dirs of the recipe"); err != nil {
			return err
		}
	}

	for _, link := range slices.Sorted(maps.Keys(links)) {
		if err := t.Link(link, links[link], "links of the recipe"); err != nil {
			return err
		}
	}

	return nil
}
