package image

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/debian"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/initramfs"
	"firstlight.dev/firstlight/image/oci"
	"firstlight.dev/firstlight/image/recipe"
	"firstlight.dev/firstlight/image/tree"
)

// ImagesDir is where the appliance has its container images, one OCI image layout.
const ImagesDir = "/usr/share/firstlight/images"

// buildLayers makes the layer of every image that has one of its own.
func (b *build) buildLayers(ctx context.Context) error {
	for i := range b.r.Images {
		image := &b.r.Images[i]
		switch {
		case image.Layer != "":
			b.layers[image.Name] = b.layers[image.Layer]
			continue
		case image.Reference != "":
			item, err := b.makePart(ctx, "registry image", image.Name, Inputs{"its reference": image.Reference}, func(out string) error {
				return oci.Pull(ctx, image.Reference, out)
			})
			if err != nil {
				return err
			}
			b.layers[image.Name] = item
			continue
		}
		shape, err := json.Marshal([]any{image.Links, image.Dirs})
		if err != nil {
			return err
		}
		code, err := b.codeDigest(codeOfTrees)
		if err != nil {
			return err
		}
		in := Inputs{"the builder's code": code, "its links and directories": cache.Key(string(shape)), "the lock's epoch": fmt.Sprint(b.l.Epoch)}
		root := b.r.Root(image.Root)
		if root != nil {
			if in, err = b.rootInputs(root); err != nil {
				return err
			}
			in["its links and directories"] = cache.Key(string(shape))
		}
		if err := b.contentInputs(in, image.Overlays, image.Programs); err != nil {
			return err
		}
		item, err := b.makePart(ctx, "layer", image.Name, in, func(out string) error {
			t := tree.New(b.l.Epoch)
			if root != nil {
				var err error
				if t, err = b.rootTree(root); err != nil {
					return err
				}
			}
			if err := b.addContent(t, image.Overlays, image.Programs, image.Links, image.Dirs); err != nil {
				return fmt.Errorf("make image %s: %w", image.Name, err)
			}
			return oci.WriteLayer(t, out)
		})
		if err != nil {
			return err
		}
		b.layers[image.Name] = item
	}
	return nil
}

// imageReferences are an image's full names.
func imageReferences(image *recipe.Image) []string {
	var names []string
	for _, tag := range image.Tags {
		names = append(names, assets.ImageDomain+"/"+image.Name+":"+tag)
	}
	return names
}

// addImages writes all container images into a tree.
func (b *build) addImages(t *tree.Tree) error {
	if len(b.r.Images) == 0 {
		return nil
	}
	layout := oci.New(b.l.Epoch)
	for i := range b.r.Images {
		image := &b.r.Images[i]
		item := b.layers[image.Name]
		if image.Reference != "" {
			if err := layout.AddPulled(item.Path, imageReferences(image)); err != nil {
				return err
			}
			continue
		}
		config := oci.Config{Entrypoint: image.Entrypoint, Command: image.Command, User: image.User, WorkDir: image.WorkDir, Env: image.Env}
		if _, err := layout.Add(item.Path, item.Digest, config, imageReferences(image)); err != nil {
			return err
		}
	}
	return layout.WriteInto(t, ImagesDir)
}

func (b *build) tool(program string) disk.Tool {
	return debian.ToolCommand(b.packages[b.r.Stick.Tools].Path, program)
}

// packagesTree is a root as its packages left it.
func (b *build) packagesTree(root string) (*tree.Tree, error) {
	t := tree.New(b.l.Epoch)
	return t, t.AddTar(b.packages[root].Path, "packages of root "+root)
}

// onlyFile finds the only file that a glob matches.
func onlyFile(t *tree.Tree, glob string) (string, error) {
	var files []string
	for _, p := range t.Paths(glob) {
		if t.Get(p).Type == tree.File {
			files = append(files, p)
		}
	}
	if len(files) != 1 {
		return "", fmt.Errorf("find %s: %d files match and not one: %s", glob, len(files), strings.Join(files, ", "))
	}
	return files[0], nil
}

// Names within the kernel's cache entry.
const (
	kernelFile    = "vmlinuz"
	initramfsFile = "initramfs.img"
)

// buildKernel takes the kernel out of the root and makes the initramfs that fits it.
func (b *build) buildKernel(ctx context.Context) (cache.Item, error) {
	s := b.r.Stick
	code, err := b.codeDigest(codeOfInitramfs)
	if err != nil {
		return cache.Item{}, err
	}
	in := Inputs{"packages of " + s.Root: b.packages[s.Root].Digest, "program " + s.Init: b.programs[s.Init].Digest, "path of the kernel": s.Kernel, "the builder's code": code}
	return b.makePart(ctx, "kernel and initramfs", "", in, func(out string) error {
		t, err := b.packagesTree(s.Root)
		if err != nil {
			return err
		}
		kernel, err := onlyFile(t, s.Kernel)
		if err != nil {
			return err
		}
		image, err := t.ReadFile(kernel)
		if err != nil {
			return err
		}
		init, err := os.ReadFile(b.programs[s.Init].Path)
		if err != nil {
			return fmt.Errorf("make initramfs: %w", err)
		}
		release := strings.TrimPrefix(path.Base(kernel), "vmlinuz-")
		if err := os.Mkdir(out, 0o755); err != nil {
			return fmt.Errorf("make initramfs: %w", err)
		}
		if err := os.WriteFile(filepath.Join(out, kernelFile), image, 0o644); err != nil {
			return fmt.Errorf("take kernel: %w", err)
		}
		f, err := os.Create(filepath.Join(out, initramfsFile))
		if err != nil {
			return fmt.Errorf("make initramfs: %w", err)
		}
		_, err = initramfs.Build(f, initramfs.Source{Init: init, Release: release, Modules: t.FS("/usr/lib/modules/" + release)})
		if closed := f.Close(); err == nil {
			err = closed
		}
		return err
	})
}
