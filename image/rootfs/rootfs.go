// Package rootfs makes the base of the appliance's root file system: the tree of its root, the container images as
// one image layout, and the artifacts.
package rootfs

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/extent"
	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/disk/mkfs"
	"firstlight.dev/firstlight/image/extents"
	"firstlight.dev/firstlight/image/oci"
	"firstlight.dev/firstlight/image/recipe"
	"firstlight.dev/firstlight/image/tree"
)

// ImagesDir is where the appliance has its container images, one OCI image layout.
const ImagesDir = "/usr/share/firstlight/images"

// Source is what a base is made from.
type Source struct {
	Recipe    *recipe.Recipe
	Epoch     int64      // seconds since 1970; no file is younger
	Root      *tree.Tree // of the appliance, without what is appended; it becomes the base's
	Layers    func(*recipe.Image) cache.Item
	Artifacts func(*recipe.Artifact) cache.Item
}

// Write writes the base as squashfs to out.
func (s Source) Write(ctx context.Context, mksquashfs mkfs.Tool, out string) error {
	if err := s.complete(); err != nil {
		return err
	}

	r, w := io.Pipe()
	go func() { w.CloseWithError(s.Root.WriteTar(w)) }()
	defer r.Close()
	return mkfs.Squashfs(ctx, mksquashfs, r, out, time.Unix(s.Epoch, 0))
}

// complete adds to the tree of the root all that the base has besides.
func (s Source) complete() error {
	if err := nameVersion(s.Root); err != nil {
		return err
	}
	if err := s.addImages(); err != nil {
		return err
	}
	if err := s.addArtifacts(); err != nil {
		return err
	}

	appended := s.Recipe.Stick.Appended
	if n := s.Root.Get(appended); appended != "" && n != nil {
		return fmt.Errorf("make root file system: %s is appended and comes from %s as well; choose another name",
			appended, n.From)
	}

	return nil
}

// nameVersion adds to os-release which image this is.
func nameVersion(t *tree.Tree) error {
	const file = "/usr/lib/os-release"
	text, err := t.ReadFile(file)
	if err != nil {
		return err
	}

	text = fmt.Appendf(text, "VARIANT=\"Firstlight\"\nVARIANT_ID=firstlight\nIMAGE_ID=firstlight\nIMAGE_VERSION=%s\n",
		assets.Version)
	n := *t.Get(file)
	n.Content = tree.Bytes(text)
	return t.Swap(file, &n)
}

// addImages writes all container images into the tree.
func (s Source) addImages() error {
	if len(s.Recipe.Images) == 0 {
		return nil
	}

	layout := oci.New(s.Epoch)
	for i := range s.Recipe.Images {
		image := &s.Recipe.Images[i]
		item := s.Layers(image)
		if image.Reference != "" {
			if err := layout.AddPulled(item.Path, imageReferences(image)); err != nil {
				return err
			}
			continue
		}

		config := oci.Config{
			Entrypoint: image.Entrypoint,
			Command:    image.Command,
			User:       image.User,
			WorkDir:    image.WorkDir,
			Env:        image.Env,
		}
		if _, err := layout.Add(item.Path, item.Digest, config, imageReferences(image)); err != nil {
			return err
		}
	}

	return layout.WriteInto(s.Root, ImagesDir)
}

// imageReferences returns an image's full names.
func imageReferences(image *recipe.Image) []string {
	var names []string
	for _, tag := range image.Tags {
		names = append(names, assets.ImageDomain+"/"+image.Name+":"+tag)
	}
	return names
}

// addArtifacts puts the artifacts into the tree.
func (s Source) addArtifacts() error {
	var shared []*recipe.Artifact // when all that they may share is there
	for i := range s.Recipe.Artifacts {
		a := &s.Recipe.Artifacts[i]
		var err error
		switch a.Kind {
		case recipe.KindPackages:
			err = s.addDir(a)
		case recipe.KindDisk, recipe.KindInitramfs:
			shared = append(shared, a)
		default:
			err = s.Root.HostFile(a.To, 0o644, s.Artifacts(a).Path, "artifact "+a.Name)
		}

		if err != nil {
			return err
		}
	}

	for _, a := range shared {
		if err := s.addShared(a); err != nil {
			return err
		}
		if a.Kind != recipe.KindDisk {
			continue
		}

		sum := fmt.Appendf(nil, "%s  %s\n", s.Artifacts(a).Digest, path.Base(a.To))
		if err := s.Root.File(a.To+".sha256", 0o644, tree.Bytes(sum), "artifact "+a.Name); err != nil {
			return err
		}
	}

	return nil
}

// addDir puts the files of an artifact that is a directory into the tree.
func (s Source) addDir(a *recipe.Artifact) error {
	dir := s.Artifacts(a).Path
	all, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read artifact %s: %w", a.Name, err)
	}

	for _, e := range all {
		err := s.Root.HostFile(path.Join(a.To, e.Name()), 0o644, filepath.Join(dir, e.Name()), "artifact "+a.Name)
		if err != nil {
			return err
		}
	}

	return nil
}

// sharedDirs are where an artifact may have its extents. The appliance changes nothing there while it runs.
var sharedDirs = []string{"/boot", "/usr"}

// addShared puts an artifact into the tree without what the tree's files hold as well (package extent).
func (s Source) addShared(a *recipe.Artifact) error {
	from, file := "artifact "+a.Name, s.Artifacts(a).Path
	all, err := extents.Find(s.Root, sharedDirs, file)
	if err != nil {
		return a.Errorf("%v", err)
	}

	info, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("put %s: %w", a.To, err)
	}

	own := extents.Own{Path: file, Length: info.Size(), Shared: all}
	if err := s.Root.File(a.To+extent.SuffixOwn, 0o644, own, from); err != nil {
		return err
	}

	return s.Root.File(a.To+extent.SuffixExtents, 0o644, tree.Bytes(extent.Encode(all)), from)
}
