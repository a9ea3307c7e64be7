package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/recipe"
	"firstlight.dev/firstlight/image/tree"
)

// Plan says what a build would make and why, without making it.
func (b *Builder) Plan(ctx context.Context) ([]Step, error) {
	result, err := b.run(ctx, PlanOnly)
	if err != nil {
		return nil, err
	}
	return result.Steps, nil
}

// Build makes the stick and what belongs beside it.
func (b *Builder) Build(ctx context.Context, mode Mode) (*Result, error) { return b.run(ctx, mode) }

func (b *Builder) run(ctx context.Context, mode Mode) (*Result, error) {
	document, err := b.readSite()
	if err != nil {
		return nil, err
	}
	r, l, err := b.loadResolved(ctx, mode)
	if err != nil {
		return nil, err
	}
	revision, err := ReadRevision(ctx, b.Top)
	if err != nil {
		return nil, err
	}
	run := &build{
		Builder: b, r: r, l: l, document: document, version: revision.Version(),
		session:  &session{store: b.Store, planOnly: mode == PlanOnly, progress: b.Progress},
		programs: map[string]cache.Item{}, packages: map[string]cache.Item{}, alone: map[string][]cache.Item{},
		layers: map[string]cache.Item{}, files: map[string]cache.Item{},
	}
	run.load(b.Top)
	result, err := run.makeParts(ctx)
	if err != nil {
		return nil, err
	}
	if mode != PlanOnly {
		if err := run.save(b.Top); err != nil {
			return nil, err
		}
	}
	result.Steps, result.Site = run.steps, b.Site
	return result, nil
}

// makeParts makes the parts in the order in which they need each other.
func (b *build) makeParts(ctx context.Context) (*Result, error) {
	late := b.latePrograms()
	if !b.planOnly {
		b.announce()
	}
	early := func(name string) bool { return !slices.Contains(late, name) }
	if err := b.buildPrograms(ctx, early); err != nil {
		return nil, err
	}
	for i := range b.r.Roots {
		if err := b.installPackages(ctx, &b.r.Roots[i]); err != nil {
			return nil, err
		}
	}
	if err := b.buildLayers(ctx); err != nil {
		return nil, err
	}
	if err := b.buildArtifacts(ctx); err != nil {
		return nil, err
	}
	kernel, err := b.buildKernel(ctx)
	if err != nil {
		return nil, err
	}
	base, err := b.buildBase(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if b.basePlaced { // a build that failed, or whose programs came out the same, leaves nothing
			_ = os.Remove(disk.PartPath(b.Out))
		}
	}()
	if err := b.buildLate(ctx, late, kernel, base); err != nil {
		return nil, err
	}
	return b.buildStick(ctx, kernel, base)
}

// stickInputs are what the disk image is made from.
func (b *build) stickInputs(kernel, base cache.Item) (Inputs, error) {
	s := b.r.Stick
	s.Pos = recipe.Pos{}
	settings, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	code, err := b.codeDigest(codeOfStick)
	if err != nil {
		return nil, err
	}
	in := Inputs{
		"the builder's code":   code,
		"kernel and initramfs": kernel.Digest, "root file system": base.Digest, "tools": b.packages[s.Tools].Digest,
		"boot loaders": b.packages[s.Boot].Digest, "settings of the stick": cache.Key(string(settings)), "the lock's epoch": fmt.Sprint(b.l.Epoch),
		"the version": b.version,
	}
	_, appended := b.splitRoot()
	for name, at := range appended {
		in["program "+name], in["path of "+name] = b.programs[name].Digest, at
	}
	for _, dir := range []string{s.ESP, s.Site} {
		digest, err := tree.DirDigest(b.path(dir))
		if err != nil {
			return nil, err
		}
		in["overlay "+dir] = digest
	}
	if b.Site != "" {
		in["the site document"] = fmt.Sprintf("%x", sha256.Sum256(b.document))
	}
	return in, nil
}

// stickLayout is what the disk is made of, without the root file system and its hash.
func (b *build) stickLayout(ctx context.Context, kernel cache.Item) (disk.Stick, error) {
	esp, err := dirFiles(b.path(b.r.Stick.ESP))
	if err != nil {
		return disk.Stick{}, err
	}
	esp = append(esp, b.bootFiles()...)
	esp = append(esp, hostFile(stick.KernelPath, filepath.Join(kernel.Path, kernelFile)), hostFile(stick.InitramfsPath, filepath.Join(kernel.Path, initramfsFile)))
	site, err := dirFiles(b.path(b.r.Stick.Site))
	if err != nil {
		return disk.Stick{}, err
	}
	if b.Site != "" {
		site = append(site, disk.File{Path: siteFile, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.document)), nil }})
	}
	bootImage, core, err := b.biosGrub(ctx)
	if err != nil {
		return disk.Stick{}, err
	}
	sizes := map[string]int64{}
	for name, size := range b.r.Stick.Sizes {
		if sizes[name], err = recipe.ParseBytes(size); err != nil {
			return disk.Stick{}, err
		}
	}
	return disk.Stick{ESP: esp, Site: site, Boot: bootImage, Core: core, Sizes: sizes}, nil
}

// bootFiles are the boot loaders for UEFI, as Debian signed them: the firmware starts
// shim, shim starts GRUB, and Secure Boot can stay on.
func (b *build) bootFiles() []disk.File {
	boot := b.packages[b.r.Stick.Boot].Path
	return []disk.File{
		hostFile("EFI/BOOT/BOOTX64.EFI", filepath.Join(boot, "usr/lib/shim/shimx64.efi.signed")),
		hostFile("EFI/BOOT/mmx64.efi", filepath.Join(boot, "usr/lib/shim/mmx64.efi.signed")),
		hostFile("EFI/BOOT/grubx64.efi", filepath.Join(boot, "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed")),
	}
}

// biosGrub makes GRUB's two stages for BIOS machines.
func (b *build) biosGrub(ctx context.Context) (boot, core []byte, err error) {
	modules := filepath.Join(b.packages[b.r.Stick.Boot].Path, "usr/lib/grub/i386-pc")
	tools := disk.GrubTools{Mkimage: b.tool("bin/grub-mkimage"), Modules: modules}
	if core, err = disk.GrubCore(ctx, tools, disk.GrubModules(), disk.GrubPrefix); err != nil {
		return nil, nil, err
	}
	if boot, err = os.ReadFile(filepath.Join(modules, "boot.img")); err != nil {
		return nil, nil, fmt.Errorf("read boot loader: %w", err)
	}
	return boot, core, nil
}

func hostFile(at, file string) disk.File {
	return disk.File{Path: strings.TrimPrefix(at, "/"), Open: func() (io.ReadCloser, error) { return os.Open(file) }}
}

// dirFiles are the files below a directory, for a FAT file system.
func dirFiles(dir string) ([]disk.File, error) {
	var files []disk.File
	err := fs.WalkDir(os.DirFS(dir), ".", func(rel string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, hostFile(rel, filepath.Join(dir, filepath.FromSlash(rel))))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", dir, err)
	}
	return files, nil
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
	esp[i].Open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
	return nil
}

func (b *build) buildStick(ctx context.Context, kernel, base cache.Item) (*Result, error) {
	in, err := b.stickInputs(kernel, base)
	if err != nil {
		return nil, err
	}
	const title = "stick"
	key := in.key(title, b.Out)
	if s, ok := b.readStamp(); ok && s.Key == key {
		b.recordStep(title, in, Step{Part: title, Action: "kept"})
		return &Result{Files: s.Files}, nil
	}
	why := b.changedInputs(title, in)
	if b.planOnly {
		b.recordStep(title, in, Step{Part: title, Action: "build", Why: why})
		return &Result{}, nil
	}
	start := time.Now()
	b.progress.Begin(title, why)
	if err := os.MkdirAll(filepath.Dir(b.Out), 0o755); err != nil {
		return nil, fmt.Errorf("write stick: %w", err)
	}
	s, err := b.writeOutputs(ctx, kernel, base)
	if err != nil {
		return nil, err
	}
	s.Key = key
	took := time.Since(start)
	b.progress.End(title, took)
	b.recordStep(title, in, Step{Part: title, Action: "build", Why: why, Took: took})
	return &Result{Files: s.Files, Rebuilt: true}, b.writeStamp(s)
}
