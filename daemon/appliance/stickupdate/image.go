package stickupdate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/assets/verity"
)

// Image is a new version: the image of a stick, of which slot a is used.
type Image struct {
	Path   string
	Config stick.SlotConfig

	config     []byte // the same as it is in the image
	digest     string // of boot, as signatures state it
	file       *os.File
	boot, root *io.SectionReader // what is in use of the two partitions
	data       int64             // bytes of root that its hash tree vouches for
}

// Open opens an image, compressed by `firstlight build` or not; a block device that has one is as good. What is no
// image of a stick, or one of a version without slots, is an error.
func Open(path string) (*Image, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open image: %w", err)
	}

	i := &Image{Path: path, file: f}
	if err := i.read(); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s is no image of Firstlight that can be updated to: %w", path, err)
	}
	return i, nil
}

// Close closes the file.
func (i *Image) Close() error { return i.file.Close() }

// read finds the slot in the image.
func (i *Image) read() error {
	content, err := content(i.file)
	if err != nil {
		return err
	}

	table, err := gpt.ReadPrimary(content)
	if err != nil {
		return err
	}
	boot, hasBoot := table.Find(stick.SlotA.Boot())
	root, hasRoot := table.Find(stick.SlotA.Root())
	if !hasBoot || !hasRoot {
		return fmt.Errorf("it has no partitions %s and %s", stick.SlotA.Boot(), stick.SlotA.Root())
	}

	i.boot = io.NewSectionReader(content, boot.Offset(), boot.Size())
	volume, err := fat.Open(i.boot)
	if err != nil {
		return fmt.Errorf("%s: %w", boot.Name, err)
	}
	if i.config, err = volume.ReadFile(stick.SlotConfigName); err != nil {
		return fmt.Errorf("%s: %w", boot.Name, err)
	}
	if i.Config, err = stick.ParseSlotConfig(i.config); err != nil {
		return fmt.Errorf("%s: %w", boot.Name, err)
	}
	if i.digest, err = volume.Digest(stick.SignatureName); err != nil {
		return fmt.Errorf("%s: %w", boot.Name, err)
	}

	all := io.NewSectionReader(content, root.Offset(), root.Size())
	size, err := rootSize(all)
	if err != nil {
		return fmt.Errorf("%s: %w", root.Name, err)
	}
	if size.all > root.Size() {
		return fmt.Errorf("%s: %d bytes are in use, the partition has %d", root.Name, size.all, root.Size())
	}

	i.data, i.root = size.data, io.NewSectionReader(content, root.Offset(), size.all)
	return nil
}

// content is what a file holds, decompressed.
func content(f *os.File) (io.ReaderAt, error) {
	size, err := f.Seek(0, io.SeekEnd) // of a block device as well
	if err != nil {
		return nil, err
	}
	if isZstd(f) {
		return newFrames(f, size)
	}
	return f, nil
}

func readConfig(volume *fat.Volume) (stick.SlotConfig, error) {
	text, err := volume.ReadFile(stick.SlotConfigName)
	if err != nil {
		return stick.SlotConfig{}, err
	}
	return stick.ParseSlotConfig(text)
}

// rootBytes is how long the squashfs of a root is, on whole blocks, and how long it is with its hash tree.
type rootBytes struct{ data, all int64 }

func rootSize(r io.ReaderAt) (rootBytes, error) {
	head := make([]byte, 96) // the superblock of squashfs; bytes_used at 40
	if _, err := r.ReadAt(head, 0); err != nil {
		return rootBytes{}, err
	}

	used := binary.LittleEndian.Uint64(head[40:])
	if string(head[:4]) != "hsqs" || used < uint64(len(head)) || used > 1<<46 {
		return rootBytes{}, fmt.Errorf("no squashfs")
	}

	data := (int64(used) + verity.BlockSize - 1) / verity.BlockSize * verity.BlockSize
	block := make([]byte, verity.BlockSize)
	if _, err := r.ReadAt(block, data); err != nil {
		return rootBytes{}, err
	}
	super, err := verity.ParseSuper(block)
	if err != nil {
		return rootBytes{}, err
	}

	return rootBytes{data, data + super.TreeSize()}, nil
}

// Check reads all that will be written and compares it with the digests in the image: kernel and initramfs with those
// that the slot's configuration has, the root with its hash tree. Who vouches for the configuration itself is
// CheckSignature's to say.
func (i *Image) Check(ctx context.Context) error {
	if err := checkSlot(ctx, i.boot, i.root, i); err != nil {
		return fmt.Errorf("%s is damaged: %w; fetch it again", i.Path, err)
	}
	return nil
}

// checkSlot compares a boot partition and a root with those of an image, as it was when it was opened.
func checkSlot(ctx context.Context, boot, root io.ReaderAt, want *Image) error {
	volume, err := fat.Open(boot)
	if err != nil {
		return err
	}
	if err := checkUnambiguous(volume); err != nil {
		return err
	}

	is, err := volume.ReadFile(stick.SlotConfigName)
	if err != nil {
		return err
	}
	if !bytes.Equal(is, want.config) {
		return fmt.Errorf("%s differs", stick.SlotConfigName)
	}

	for _, file := range []struct{ name, sum string }{
		{stick.KernelName, want.Config.Kernel}, {stick.InitramfsName, want.Config.Initramfs},
	} {
		b, err := volume.ReadFile(file.name)
		if err != nil {
			return err
		}
		if fmt.Sprintf("%x", sha256.Sum256(b)) != file.sum {
			return fmt.Errorf("%s differs from its digest", file.name)
		}
	}

	digest, err := volume.Digest(stick.SignatureName)
	if err != nil {
		return err
	}
	if digest != want.digest {
		return errors.New("its boot partition differs outside of its files")
	}

	damage, err := verity.Check(ctx, root, want.data, want.Config.RootHash)
	if err != nil {
		return err
	}
	if len(damage) > 0 {
		return fmt.Errorf("block at byte %d of the root (%s) and %d more differ from their hashes",
			damage[0].Offset, damage[0].Part, len(damage)-1)
	}
	return nil
}

// checkUnambiguous refuses a boot partition of which GRUB might read something else than what is checked here: with faults,
// or with two files of one name.
func checkUnambiguous(volume *fat.Volume) error {
	if faults := volume.Check(); len(faults) > 0 {
		return fmt.Errorf("its boot partition: %s", faults[0])
	}
	files, err := volume.List()
	if err != nil {
		return err
	}

	seen := map[string]bool{}
	for _, f := range files {
		name := strings.ToLower(f.Path)
		if seen[name] {
			return fmt.Errorf("its boot partition has two files %s", f.Path)
		}
		seen[name] = true
	}
	return nil
}
