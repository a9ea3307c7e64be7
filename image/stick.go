package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/initramfs"
	"firstlight.dev/firstlight/image/media"
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
		disk.TextFile(stick.EnvironmentPath, stick.Environment{Slot: stick.SlotA}.Encode()))
	config, err := os.ReadFile(filepath.Join(b.path(b.r.Stick.ESP), stick.GrubConfigPath))
	if err != nil {
		return disk.Stick{}, fmt.Errorf("make GRUB for Secure Boot: %w", err)
	}
	owned, err := loaders.OwnedGRUB(ctx, config)
	if err != nil {
		return disk.Stick{}, err
	}
	esp = append(esp, disk.TextFile(stick.OwnedGRUBPath, owned))

	slot := []disk.File{
		disk.HostFile(stick.KernelName, filepath.Join(kernel, initramfs.KernelFile)),
		disk.HostFile(stick.InitramfsName, filepath.Join(kernel, initramfs.InitramfsFile)),
		disk.TextFile(stick.SignatureName, stick.PadSignature(nil)),
	}
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
		Slot:  slot,
		Site:  site,
		Boot:  boot,
		Core:  core,
		Sizes: sizes,
	}, nil
}

// slotConfig is the slot's configuration for a root hash: what GRUB hands to the kernel decides which root it may run.
func (b *build) slotConfig(ctx context.Context, from Made, rootHash string) (disk.File, error) {
	c := stick.SlotConfig{Version: b.version, RootHash: rootHash}
	for name, sum := range map[string]*string{initramfs.KernelFile: &c.Kernel, initramfs.InitramfsFile: &c.Initramfs} {
		var err error
		if *sum, err = media.DigestFile(ctx, filepath.Join(from.path(kindKernel), name)); err != nil {
			return disk.File{}, err
		}
	}
	return disk.TextFile(stick.SlotConfigName, c.Encode()), nil
}
