package image

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/initramfs"
	"firstlight.dev/firstlight/image/recipe"
)

// makeStick writes the outputs, unless those that are there were made from the same.
func (b *build) makeStick(ctx context.Context, p Part) (*Result, error) {
	in, from, err := b.complete(p)
	if err != nil {
		return nil, err
	}

	key := in.key(p.Kind, b.Out)
	if s, ok := b.readStamp(); ok && s.Key == key {
		b.recordStep(in, Step{Part: p.Title(), Action: "kept"})
		return &Result{Files: s.Files}, nil
	}
	if b.planOnly {
		b.recordStep(in, Step{Part: p.Title(), Action: "build", Why: b.changedInputs(p.Title(), in)})
		return &Result{}, nil
	}

	var s stamp
	err = b.runPart(p.Title(), in, func() error {
		if err := os.MkdirAll(filepath.Dir(b.Out), 0o755); err != nil {
			return fmt.Errorf("write stick: %w", err)
		}
		s, err = b.writeOutputs(ctx, from)
		return err
	})
	if err != nil {
		return nil, err
	}

	s.Key = key
	return &Result{Files: s.Files, Rebuilt: true}, b.writeStamp(s)
}

// stickLayout is what the disk is made of, without the root file system and its hash.
func (b *build) stickLayout(ctx context.Context, from Made) (disk.Stick, error) {
	loaders, kernel := b.bootLoaders(from), from.path(kindKernel)
	esp, err := disk.DirFiles(b.path(b.r.Stick.ESP))
	if err != nil {
		return disk.Stick{}, err
	}

	esp = append(append(esp, loaders.UEFI()...),
		disk.HostFile(stick.KernelPath, filepath.Join(kernel, initramfs.KernelFile)),
		disk.HostFile(stick.InitramfsPath, filepath.Join(kernel, initramfs.InitramfsFile)))
	site, err := disk.DirFiles(b.path(b.r.Stick.Site))
	if err != nil {
		return disk.Stick{}, err
	}

	if b.Site != "" {
		site = append(site, disk.TextFile(siteFile, b.document))
	}

	boot, core, err := loaders.BIOS(ctx)
	if err != nil {
		return disk.Stick{}, err
	}

	sizes := map[string]int64{}
	for name, size := range b.r.Stick.Sizes {
		if sizes[name], err = recipe.ParseBytes(size); err != nil {
			return disk.Stick{}, err
		}
	}

	return disk.Stick{
		ESP:   esp,
		Site:  site,
		Boot:  boot,
		Core:  core,
		Sizes: sizes,
	}, nil
}

// fillGrubConfig puts values in place of their placeholders into the boot loader's configuration: the root hash,
// because what GRUB hands to the kernel decides which root it may run, and the version.
func fillGrubConfig(esp []disk.File, values map[string]string) error {
	i := slices.IndexFunc(esp, func(file disk.File) bool { return "/"+file.Path == path.Clean(stick.GrubConfigPath) })
	if i < 0 {
		return fmt.Errorf("fill in %s: overlays/esp has no such file", stick.GrubConfigPath)
	}

	r, err := esp[i].Open()
	if err != nil {
		return fmt.Errorf("fill in %s: %w", esp[i].Path, err)
	}

	text, err := io.ReadAll(r)
	r.Close()
	if err != nil {
		return fmt.Errorf("fill in %s: %w", esp[i].Path, err)
	}

	for _, placeholder := range slices.Sorted(maps.Keys(values)) {
		if n := bytes.Count(text, []byte(placeholder)); n != 1 {
			return fmt.Errorf("fill in %s: %s is there %d times and not once", esp[i].Path, placeholder, n)
		}
		text = bytes.Replace(text, []byte(placeholder), []byte(values[placeholder]), 1)
	}

	esp[i] = disk.TextFile(esp[i].Path, text)
	return nil
}
