// Package owner makes an image one for firmware that trusts its owner's keys alone: what the firmware starts is a GRUB
// that the owner has signed, and GRUB reads no file that the owner has not signed. docs/boot.md says what that covers.
package owner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/secureboot"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/media"
)

// SignImage writes the image at path, compressed or not, signed to the new file out. out is there whole or not at all.
func SignImage(ctx context.Context, path, out string, keys Keys) error {
	image, err := media.Open(ctx, path)
	if err != nil {
		return err
	}
	defer image.Close()

	table, err := gpt.ReadPrimary(image)
	if err != nil {
		return fmt.Errorf("sign %s: %w", path, err)
	}
	info, err := os.Stat(path) // with a site in it, it is its owner's alone
	if err != nil {
		return fmt.Errorf("sign: %w", err)
	}

	dir, err := os.MkdirTemp(filepath.Dir(out), ".signing-")
	if err != nil {
		return fmt.Errorf("sign %s: %w", path, err)
	}
	defer os.RemoveAll(dir)

	var made []part
	for name, sign := range map[string]func(*fat.Volume) ([]disk.File, error){
		stick.PartitionESP: keys.signESP,
		stick.SlotA.Boot(): keys.signSlot,
	} {
		p, err := makePart(ctx, image, table, name, filepath.Join(dir, name), sign)
		if err != nil {
			return fmt.Errorf("sign %s: %w", path, err)
		}
		made = append(made, p)
	}

	whole := filepath.Join(dir, "image")
	if err := assemble(ctx, image, made, whole, info.Mode().Perm()); err != nil {
		return fmt.Errorf("sign %s: %w", path, err)
	}
	if err := moveNew(whole, out); err != nil {
		return fmt.Errorf("sign %s: %w", path, err)
	}
	return nil
}

// moveNew renames a file, and not over one that is there. FAT has no links, NFS no such rename.
func moveNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return os.Link(from, to)
	}
	if err != nil {
		return fmt.Errorf("make %s: %w", to, err)
	}
	return nil
}

// part is a partition made for the signed image, in a file.
type part struct {
	at, size int64
	file     string
}

func makePart(
	ctx context.Context, image *media.Image, table *gpt.Table, name, file string, sign func(*fat.Volume) ([]disk.File, error),
) (part, error) {
	p, ok := table.Find(name)
	if !ok {
		return part{}, fmt.Errorf("it has no partition %s", name)
	}
	volume, err := fat.Open(io.NewSectionReader(image, p.Offset(), p.Size()))
	if err != nil {
		return part{}, fmt.Errorf("%s: %w", name, err)
	}
	files, err := sign(volume)
	if err != nil {
		return part{}, fmt.Errorf("%s: %w", name, err)
	}

	f, err := os.Create(file)
	if err != nil {
		return part{}, err
	}
	_, err = disk.CopyFAT(ctx, image, name, f, files...)
	return part{at: p.Offset(), size: p.Size(), file: file}, errors.Join(err, f.Close())
}

// assemble writes the image with other partitions in their places. Holes stay holes.
func assemble(ctx context.Context, image *media.Image, made []part, out string, perm os.FileMode) error {
	f, err := os.OpenFile(out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(image.Size); err != nil {
		return err
	}

	at := int64(0)
	copyTo := func(end int64) error {
		_, err := disk.CopySparse(ctx, io.NewOffsetWriter(f, at), io.NewSectionReader(image, at, end-at))
		return err
	}
	for len(made) > 0 {
		next := 0
		for i, p := range made {
			if p.at < made[next].at {
				next = i
			}
		}
		p := made[next]
		made = append(made[:next:next], made[next+1:]...)
		if err := copyTo(p.at); err != nil {
			return err
		}

		content, err := os.Open(p.file)
		if err != nil {
			return err
		}
		_, err = disk.CopySparse(ctx, io.NewOffsetWriter(f, p.at), content)
		if err := errors.Join(err, content.Close()); err != nil {
			return err
		}
		at = p.at + p.size
	}
	if err := copyTo(image.Size); err != nil {
		return err
	}
	return f.Sync()
}

// signESP gives the files that differ on a signed image's ESP.
func (k Keys) signESP(volume *fat.Volume) ([]disk.File, error) {
	grub, err := volume.ReadFile(stick.OwnedGRUBPath[1:])
	if err != nil {
		return nil, fmt.Errorf("it has no GRUB that an owner could sign (%w): build the image again", err)
	}
	if grub, err = secureboot.PutGRUBKey(grub, &k.DB.Private.PublicKey); err != nil {
		return nil, err
	}
	if grub, err = k.DB.Sign(stick.LoaderPath, grub); err != nil {
		return nil, err
	}

	files := []disk.File{disk.TextFile(stick.LoaderPath, grub)}
	for _, name := range slices.Sorted(maps.Keys(k.Updates)) { // so that the same image comes of the same keys
		files = append(files, disk.TextFile(stick.KeysDir+"/"+name+updateSuffix, k.Updates[name]))
	}
	return files, nil
}

// signSlot gives the files that differ in a signed image's boot partition. The signature of the image before is not one
// of this image.
func (k Keys) signSlot(volume *fat.Volume) ([]disk.File, error) {
	content := map[string][]byte{}
	for _, name := range secureboot.SignedFiles {
		b, err := volume.ReadFile(name)
		if err != nil {
			return nil, err
		}
		content[name] = b
	}
	config, err := stick.ParseSlotConfig(content[stick.SlotConfigName])
	if err != nil {
		return nil, err
	}

	kernel, err := k.DB.Sign(stick.KernelName, content[stick.KernelName])
	if err != nil {
		return nil, err
	}
	config.Kernel = digest(kernel)
	content[stick.KernelName], content[stick.SlotConfigName] = kernel, config.Encode()

	files := []disk.File{disk.TextFile(stick.SignatureName, stick.PadSignature(nil))}
	for _, name := range secureboot.SignedFiles {
		b := content[name]
		signature, err := k.DB.SignFile(b)
		if err != nil {
			return nil, err
		}
		files = append(files, disk.TextFile(name, b), disk.TextFile(name+secureboot.Suffix, signature))
	}
	return files, nil
}
