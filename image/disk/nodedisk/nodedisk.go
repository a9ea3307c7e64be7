// Package nodedisk makes the disk of a node's system out of a root: it boots by BIOS and UEFI. The root has its own
// kernel and initramfs, as Debian's packages make them.
package nodedisk

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"time"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/disk/mkfs"
	"firstlight.dev/firstlight/image/firmware"
	"firstlight.dev/firstlight/image/tree"
)

// espSize is what a node's disk has besides its root: both tables, BIOS boot and ESP.
const espSize = 48 << 20

// Disk is what a node's disk is made from.
type Disk struct {
	Name    string // of the artifact; what identifies its file system is derived from it
	Root    *tree.Tree
	Size    int64 // of the whole disk, in bytes
	CmdLine string
	Epoch   int64 // when the file system was made, in seconds since 1970
	Loaders disk.BootLoaders
	Mke2fs  mkfs.Tool
}

// Write writes the disk to out.
func (d Disk) Write(ctx context.Context, out string) error {
	if d.Size <= 2*espSize {
		return fmt.Errorf("size %d leaves no room for a root; give more than %d MiB", d.Size, 2*espSize>>20)
	}

	dir, err := os.MkdirTemp(filepath.Dir(out), "disk-")
	if err != nil {
		return fmt.Errorf("make disk: %w", err)
	}

	tar, ext4 := filepath.Join(dir, "root.tar"), filepath.Join(dir, "root.ext4")
	if err := d.Root.WriteTarFile(tar); err != nil {
		return err
	}

	options := mkfs.Ext4Options{
		Label:    "ROOT",
		UUID:     uuid("root", d.Name),
		HashSeed: uuid("hash seed", d.Name),
		Size:     d.Size - espSize,
		Stamp:    time.Unix(d.Epoch, 0),
	}
	if err := mkfs.Ext4(ctx, d.Mke2fs, tar, ext4, options); err != nil {
		return err
	}

	config, err := grubConfig(d.Root, options.UUID, d.CmdLine)
	if err != nil {
		return err
	}

	boot, core, err := d.Loaders.BIOS(ctx)
	if err != nil {
		return err
	}

	esp := append(d.Loaders.UEFI(), disk.TextFile(stick.GrubConfigPath, config))
	layout, err := disk.Node{
		ESP:  esp,
		Root: ext4,
		Boot: boot,
		Core: core,
		Size: d.Size,
	}.Layout()
	if err != nil {
		return err
	}

	return disk.Write(ctx, out, layout)
}

// grubConfig returns what GRUB reads on the ESP: it goes to the root's own configuration
// if there is one, else it starts the root's one kernel.
func grubConfig(t *tree.Tree, rootUUID, cmdline string) ([]byte, error) {
	text := fmt.Sprintf("search --no-floppy --fs-uuid --set=root %s\n", rootUUID)
	if t.Get("/boot/grub/grub.cfg") != nil {
		return []byte(text + "set prefix=($root)/boot/grub\nconfigfile /boot/grub/grub.cfg\n"), nil
	}

	kernel, err := t.OnlyFile("/boot/vmlinuz-*")
	if err != nil {
		return nil, err
	}

	initrd, err := t.OnlyFile("/boot/initrd.img-*")
	if err != nil {
		return nil, err
	}

	archives := path.Join("/", initrd)
	if t.Get(firmware.MicrocodePath) != nil { // before all else
		archives = firmware.MicrocodePath + " " + archives
	}

	text += fmt.Sprintf("set iommu=\nif [ -e ($root)%s ]; then set iommu=\"%s\"; fi\n", stick.IOMMUMark, stick.IOMMUParameters)
	return fmt.Appendf([]byte(text), "linux %s root=UUID=%s %s $iommu\ninitrd %s\nboot\n",
		path.Join("/", kernel), rootUUID, cmdline, archives), nil
}

// uuid derives an identity that is the same in every build (RFC 9562 §5.8, version 8).
func uuid(what, name string) string {
	h := sha256.Sum256([]byte("firstlight " + what + " " + name))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}
