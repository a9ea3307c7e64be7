package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"firstlight.dev/firstlight/image/debian"
	"firstlight.dev/firstlight/image/firmware"
	"firstlight.dev/firstlight/image/recipe"
	"firstlight.dev/firstlight/image/tree"
)

// isFirmware reports whether other roots have their firmware from this one.
func (b *build) isFirmware(root string) bool {
	return slices.ContainsFunc(b.r.Roots, func(other recipe.Root) bool { return other.Firmware == root })
}

// rootsInOrder are the roots, those first that others have their firmware from.
func (b *build) rootsInOrder() []*recipe.Root {
	var first, rest []*recipe.Root
	for i := range b.r.Roots {
		if root := &b.r.Roots[i]; b.isFirmware(root.Name) {
			first = append(first, root)
		} else {
			rest = append(rest, root)
		}
	}
	return append(first, rest...)
}

// firmware is what the drivers of the appliance's kernel name, out of a root of packages, as a tar archive. The roots
// that have it leave out the same drivers (a test of this package), so that they share it.
func (l *list) firmware(root *recipe.Root) Part {
	of := l.r.Root(l.r.Stick.Root)
	kernels := slices.DeleteFunc(l.l.Root(of.Name), func(p debian.Package) bool {
		return !strings.HasPrefix(p.Name, "linux-image-")
	})
	in := l.code("image/firmware", "image/debian").add(l.epoch()).add(packageInputs(kernels))
	in["path patterns"] = l.settings(of.Exclude, of.Include)
	return Part{
		Kind:   kindFirmware,
		Name:   root.Name,
		Needs:  []string{titleOf(kindPackages, root.Name)},
		Inputs: in,
		Make: func(ctx context.Context, from Made, out string) error {
			drivers, err := l.readDrivers(ctx, of, kernels)
			if err != nil {
				return fmt.Errorf("make firmware: %w", err)
			}

			packages, err := l.packagesTree(from, root.Name)
			if err != nil {
				return err
			}

			chosen, err := firmware.Choose(drivers, packages, l.l.Epoch)
			if err != nil {
				return err
			}

			return chosen.WriteTarFile(out)
		},
	}
}

// readDrivers reads which firmware the drivers name that a root keeps of its kernels.
func (l *list) readDrivers(ctx context.Context, of *recipe.Root, kernels []debian.Package) ([]firmware.Driver, error) {
	files, err := l.fetch(ctx, titleOf(kindFirmware, of.Name), kernels)
	if err != nil {
		return nil, err
	}

	dir, err := os.MkdirTemp("", "firstlight-firmware-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	t := tree.New(l.l.Epoch)
	for _, p := range kernels {
		tar := filepath.Join(dir, p.SHA256)
		if err := debian.DataTar(ctx, files[p.SHA256], tar); err != nil {
			return nil, err
		}
		if err := t.UnpackTar(tar, "package "+p.Name); err != nil {
			return nil, err
		}
	}

	t.Filter(func(p string) bool { return !debian.IsExcluded("/"+p, of.Exclude, of.Include) })
	var all []firmware.Driver
	for _, modules := range t.Paths("/usr/lib/modules/*") {
		found, err := firmware.ReadDrivers(t.FS(modules))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}

	return all, nil
}
