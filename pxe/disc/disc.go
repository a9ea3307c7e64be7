// Package disc puts together the disc from which a server boots the deploy ramdisk by virtual media: an ISO 9660 file
// system with Rock Ridge whose El Torito entry is a FAT file system with shim and GRUB (UEFI 2.10, 13.3.2.1). Only what
// describes the files is in memory. Kernel and ramdisk are read from where they are while a disc is served, and each
// disc has a configuration of GRUB, with the kernel's arguments, of its own.
package disc

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/fat12"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"

	"firstlight.dev/firstlight/pxe/concat"
)

// Loaders are the boot loaders, as Debian signed them.
type Loaders struct {
	Shim []byte // shimx64.efi, which the firmware starts
	GRUB []byte // the one for CDs, gcdx64.efi, which shim starts; it looks for infoFile, and then for configFile
}

// Names of the files.
const (
	infoFile    = ".disk/info"
	configFile  = "boot/grub/grub.cfg"
	loadersFile = "boot/grub/efi.img"
	kernelFile  = "vmlinuz"
	ramdiskFile = "initrd"
)

const (
	sector     = 2048   // of ISO 9660, in bytes
	configSize = sector // of configFile on every disc, whatever the arguments
	label      = "FIRSTLIGHT"
)

// Layout is where everything is on the discs with a kernel and a ramdisk of given sizes.
type Layout struct {
	described []byte // all but the holes, in order
	holes     []hole // in the order of their places
}

// hole is a file that a disc is given when it is served.
type hole struct {
	name     string
	at, size int64 // in bytes
}

// NewLayout lays a disc out. kernel and ramdisk are sizes in bytes. It writes sparse files of some MiB below the folder
// for temporary files, and removes them.
func NewLayout(l Loaders, kernel, ramdisk int64) (*Layout, error) {
	dir, err := os.MkdirTemp("", "firstlight-disc-")
	if err != nil {
		return nil, fmt.Errorf("lay out disc: %w", err)
	}
	defer os.RemoveAll(dir)

	holes := []hole{
		{name: configFile, size: configSize},
		{name: kernelFile, size: kernel},
		{name: ramdiskFile, size: ramdisk},
	}
	layout, err := layOut(dir, l, holes)
	if err != nil {
		return nil, fmt.Errorf("lay out disc: %w", err)
	}
	return layout, nil
}

func layOut(dir string, l Loaders, holes []hole) (*Layout, error) {
	tree := filepath.Join(dir, "tree")
	for _, h := range holes {
		if err := writeFile(tree, h.name, h.mark(), h.size); err != nil {
			return nil, err
		}
	}

	info := []byte("boots the deploy ramdisk\n")
	if err := writeFile(tree, infoFile, info, int64(len(info))); err != nil {
		return nil, err
	}
	if err := writeLoaders(filepath.Join(tree, loadersFile), l); err != nil {
		return nil, err
	}

	f, err := os.Create(filepath.Join(dir, "image"))
	if err != nil {
		return nil, err
	}
	defer f.Close()

	image := &image{File: f, holes: holes}
	if err := writeImage(image, tree); err != nil {
		return nil, err
	}
	return image.describe()
}

// mark is what a file begins with until its place on the disc is known.
func (h hole) mark() []byte { return []byte("the place of " + h.name) }

// writeFile writes a file of a size, which has zeros where content ends.
func writeFile(tree, name string, content []byte, size int64) error {
	path := filepath.Join(tree, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(path, content, 0o644), os.Truncate(path, size))
}

// spareFAT is what a FAT file system needs besides what is in its files, and more, in bytes.
const spareFAT = 256 << 10

// writeLoaders makes the FAT file system that the firmware starts.
func writeLoaders(path string, l Loaders) error {
	image, err := os.Create(path)
	if err != nil {
		return err
	}
	defer image.Close()

	size := (int64(len(l.Shim)+len(l.GRUB)) + spareFAT + 1<<20 - 1) >> 20 << 20
	if err := image.Truncate(size); err != nil {
		return err
	}

	volume, err := fat12.Create(file.New(image, false), size, 0, int64(fat12.SectorSize512), label, true)
	if err != nil {
		return fmt.Errorf("make FAT: %w", err)
	}

	if err := errors.Join(volume.Mkdir("/EFI"), volume.Mkdir("/EFI/BOOT")); err != nil {
		return fmt.Errorf("make FAT: %w", err)
	}

	for _, f := range []struct {
		name    string
		content []byte
	}{{"BOOTX64.EFI", l.Shim}, {"grubx64.efi", l.GRUB}} {
		w, err := volume.OpenFile("/EFI/BOOT/"+f.name, os.O_CREATE|os.O_RDWR)
		if err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
		_, err = w.Write(f.content)
		if err := errors.Join(err, w.Close()); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}

	return nil
}

// writeImage makes the ISO 9660 file system of a folder, which it removes.
func writeImage(image *image, tree string) error {
	volume, err := iso9660.Create(file.New(image, false), 0, 0, sector, tree)
	if err != nil {
		return fmt.Errorf("make ISO 9660: %w", err)
	}

	err = volume.Finalize(iso9660.FinalizeOptions{
		RockRidge:        true, // else GRUB sees other names
		VolumeIdentifier: label,
		ElTorito: &iso9660.ElTorito{
			HideBootCatalog: true,
			Entries: []*iso9660.ElToritoEntry{
				{Platform: iso9660.EFI, Emulation: iso9660.NoEmulation, BootFile: loadersFile},
			},
		},
	})
	if err != nil {
		return fmt.Errorf("make ISO 9660: %w", err)
	}
	return nil
}

// image is a disc while it is laid out. Zeros take no room in it, and marks tell the places of holes: go-diskfs does
// not, and reads no folder below another one.
type image struct {
	*os.File
	size  int64 // of all that was written, in bytes
	holes []hole
}

// WriteAt implements io.WriterAt.
func (i *image) WriteAt(b []byte, at int64) (int, error) {
	i.size = max(i.size, at+int64(len(b)))
	content := bytes.TrimRight(b, "\x00")
	if len(content) == 0 {
		return len(b), nil
	}

	if h := slices.IndexFunc(i.holes, func(h hole) bool { return bytes.Equal(content, h.mark()) }); h >= 0 {
		i.holes[h].at = at
		return len(b), nil
	}

	return i.File.WriteAt(b, at)
}

// describe reads all but the holes.
func (i *image) describe() (*Layout, error) {
	if err := i.Truncate(i.size); err != nil {
		return nil, err
	}

	l := &Layout{holes: slices.SortedFunc(slices.Values(i.holes), func(a, b hole) int { return cmp.Compare(a.at, b.at) })}
	var at int64
	for _, h := range append(slices.Clone(l.holes), hole{name: "its end", at: i.size}) {
		if h.at <= at {
			return nil, fmt.Errorf("%s has no place on the disc", h.name)
		}

		piece := make([]byte, h.at-at)
		if _, err := i.ReadAt(piece, at); err != nil {
			return nil, fmt.Errorf("read the disc: %w", err)
		}
		l.described, at = append(l.described, piece...), h.at+h.size
	}
	return l, nil
}

// Size is that of every disc, in bytes.
func (l *Layout) Size() int64 {
	size := int64(len(l.described))
	for _, h := range l.holes {
		size += h.size
	}
	return size
}

// ErrArguments says that arguments of a kernel do not fit on a disc, or would be more than arguments to GRUB.
var ErrArguments = errors.New("arguments of the kernel do not fit on the disc")

// Disc is the disc with this kernel and ramdisk, which are of the layout's sizes. Closing it closes them, as far as
// they can be. Arguments may have letters, digits and :/=.,_+- and no other character.
func (l *Layout) Disc(kernel, ramdisk io.ReadSeeker, args []string) (*concat.File, error) {
	config, err := renderConfig(args)
	if err != nil {
		return nil, err
	}

	content := map[string]io.ReadSeeker{configFile: bytes.NewReader(config), kernelFile: kernel, ramdiskFile: ramdisk}
	var parts []concat.Part
	rest, at := l.described, int64(0)
	for _, h := range l.holes {
		before := h.at - at
		parts = append(parts, concat.Bytes(rest[:before]), concat.Part{ReadSeeker: content[h.name], Size: h.size})
		rest, at = rest[before:], h.at+h.size
	}
	return concat.New(append(parts, concat.Bytes(rest))...), nil
}

// renderConfig is the configuration of GRUB. It ends in blank lines.
func renderConfig(args []string) ([]byte, error) {
	for _, a := range args {
		if strings.Trim(a, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:/=.,_+-") != "" || a == "" {
			return nil, fmt.Errorf("%w: %q has another character than those that GRUB takes as they are", ErrArguments, a)
		}
	}

	text := fmt.Sprintf(`echo "loading kernel and ramdisk from the disc"
if linux /%s %s; then
	if initrd /%s; then
		boot
	fi
fi
echo "the disc cannot be read; trying again in 30 seconds"
sleep 30
reboot
`, kernelFile, strings.Join(args, " "), ramdiskFile)
	if len(text) > configSize {
		return nil, fmt.Errorf("%w: there are %d bytes too many", ErrArguments, len(text)-configSize)
	}

	return append([]byte(text), bytes.Repeat([]byte("\n"), configSize-len(text))...), nil
}
