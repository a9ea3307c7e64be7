package verify

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/assets/verity"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/media"
	"firstlight.dev/firstlight/image/verify/closure"
)

// loaders are what the firmware or the shim starts; each is a PE program.
var loaders = [...]string{"/EFI/BOOT/BOOTX64.EFI", "/EFI/BOOT/grubx64.efi"}

// grubFile is a file that grub.cfg loads, and in which partition: of the slot, or its own.
var grubFile = regexp.MustCompile(`(?m)^\s*(?:if\s+)?(?:linux|initrd|source|load_env --file)\s+(\$boot)?(/\S+)`)

// slot is one of the two places for a version.
type slot struct {
	stick.Slot
	rootHash string // as its configuration says
	rootSize int64  // bytes of its root that squashfs uses
}

// checkBoot checks GRUB's two stages for BIOS, the loaders for UEFI, and that grub.cfg leads to
// files that are there, in each slot that is not empty.
func (c *check) checkBoot(context.Context) (string, error) {
	if p, ok := c.partition(stick.PartitionBIOS); ok {
		c.grubBIOS(p)
	}

	if _, ok := c.partition(stick.PartitionESP); !ok {
		return "no ESP", nil
	}

	for _, name := range loaders {
		if b, ok := c.file(stick.PartitionESP, name); !ok || !bytes.HasPrefix(b, []byte("MZ")) {
			c.addFinding(stick.PartitionESP, -1, "%s is not there or no EFI program", name)
		}
	}

	config, ok := c.file(stick.PartitionESP, stick.GrubConfigPath)
	if !ok {
		c.addFinding(stick.PartitionESP, -1, "%s is not there", stick.GrubConfigPath)
		return "no grub.cfg", nil
	}

	c.checkEnvironment()
	files := grubFile.FindAllSubmatch(config, -1)
	if len(files) == 0 {
		c.addFinding(stick.PartitionESP, -1, "%s starts nothing", stick.GrubConfigPath)
	}

	for _, which := range []stick.Slot{stick.SlotA, stick.SlotB} {
		if c.files[which.Boot()] == nil && which == stick.SlotB {
			continue // an image has no version there
		}
		for _, m := range files {
			partition := stick.PartitionESP
			if len(m[1]) > 0 {
				partition = which.Boot()
			}
			if b, ok := c.file(partition, string(m[2])); !ok || len(b) == 0 {
				c.addFinding(partition, -1, "%s names %s, which is not there or empty", stick.GrubConfigPath, m[2])
			}
		}
		c.checkSlot(which)
	}

	return fmt.Sprintf("GRUB for BIOS, %d EFI programs, %d files of grub.cfg", len(loaders), len(files)), nil
}

// checkEnvironment checks that GRUB finds its memory, and that the slot that it starts is not empty.
func (c *check) checkEnvironment() {
	block, ok := c.file(stick.PartitionESP, stick.EnvironmentPath)
	if !ok {
		return // grub.cfg names it
	}

	e, err := stick.ParseEnvironment(block)
	if err != nil {
		c.addFinding(stick.PartitionESP, -1, "%s: %v", stick.EnvironmentPath, err)
		return
	}
	for _, which := range []stick.Slot{e.Slot, e.Try} {
		if which != "" && c.files[which.Boot()] == nil {
			c.addFinding(stick.PartitionESP, -1, "%s names slot %s, which is empty", stick.EnvironmentPath, which)
		}
	}
}

// checkSlot checks a slot's kernel and initramfs by its configuration.
func (c *check) checkSlot(which stick.Slot) {
	text, ok := c.file(which.Boot(), "/"+stick.SlotConfigName)
	if !ok {
		return // grub.cfg names it
	}

	config, err := stick.ParseSlotConfig(text)
	if err != nil {
		c.addFinding(which.Boot(), -1, "%v", err)
		return
	}

	for _, one := range []struct{ name, sum string }{
		{stick.KernelName, config.Kernel}, {stick.InitramfsName, config.Initramfs},
	} {
		if b, ok := c.file(which.Boot(), "/"+one.name); ok && fmt.Sprintf("%x", sha256.Sum256(b)) != one.sum {
			c.addFinding(which.Boot(), -1, "%s differs from its digest in %s", one.name, stick.SlotConfigName)
		}
	}
	c.slots = append(c.slots, slot{Slot: which, rootHash: config.RootHash})
}

// file finds a file of a partition, without regard to case.
func (c *check) file(partition, name string) ([]byte, bool) {
	for have, b := range c.files[partition] {
		if strings.EqualFold(have, name) {
			return b, true
		}
	}
	return nil, false
}

// grubBIOS checks what was patched: sector 0 must lead to the core, the core to its rest.
// Patching what is there once more must change nothing.
func (c *check) grubBIOS(p gpt.Partition) {
	sector := make([]byte, gpt.SectorSize)
	core := make([]byte, p.Size())
	if _, err := c.image.ReadAt(sector, 0); err != nil {
		c.addFinding("", 0, "read boot code: %v", err)
		return
	}
	if _, err := c.image.ReadAt(core, p.Offset()); err != nil {
		c.addFinding(p.Name, 0, "read core.img: %v", err)
		return
	}

	const countAt = 0x1fc
	sectors := int(binary.LittleEndian.Uint16(core[countAt:])) + 1
	if sectors < 2 || sectors*gpt.SectorSize > len(core) {
		c.addFinding(p.Name, countAt, "core.img says it has %d sectors", sectors)
		return
	}

	core = core[:sectors*gpt.SectorSize]
	code, patched, err := disk.PatchGrub(sector, core, p.First)
	if err != nil {
		c.addFinding(p.Name, 0, "%v", err)
		return
	}

	for i := range code {
		if code[i] != sector[i] {
			c.addFinding("", int64(i), "boot code is not patched for a core at sector %d", p.First)
			break
		}
	}

	for i := range patched {
		if patched[i] != core[i] {
			c.addFinding(p.Name, int64(i), "core.img is not patched for sector %d", p.First)
			break
		}
	}

	if bytes.Count(core[512:1024], []byte{0}) == 512 {
		c.addFinding(p.Name, 512, "core.img has no second sector")
	}
}

// checkRoot checks the superblock and hashes every block of each slot's root up to the root hash.
func (c *check) checkRoot(ctx context.Context) (string, error) {
	var seen []string
	for i := range c.slots {
		text, err := c.checkSlotRoot(ctx, &c.slots[i])
		if err != nil {
			return "", err
		}
		seen = append(seen, text)
	}
	if len(seen) == 0 {
		return "no root", nil
	}
	return strings.Join(seen, ", "), nil
}

func (c *check) checkSlotRoot(ctx context.Context, s *slot) (string, error) {
	p, ok := c.partition(s.Root())
	if !ok {
		return "no " + s.Root(), nil
	}

	size, err := media.SquashfsSize(c.sectionOf(p))
	if err == nil && size > p.Size() {
		err = fmt.Errorf("squashfs superblock: %d bytes in use, the partition has %d", size, p.Size())
	}

	if err != nil {
		c.addFinding(p.Name, 0, "%v", err)
		return "no squashfs", nil
	}

	s.rootSize = size
	damage, err := verity.Check(ctx, c.sectionOf(p), size, s.rootHash)
	if err != nil {
		c.addFinding(p.Name, size, "%v", err)
		return "squashfs", nil
	}

	for _, d := range damage {
		text := "this block differs from its hash"
		switch d.Part {
		case verity.PartTree:
			text = "this block of the hash tree differs from the level above"
		case verity.PartTop:
			text = "the top of the hash tree does not give the root hash that slot.cfg names"
		}
		c.addFinding(p.Name, d.Offset, "%s (%d bytes from here)", text, verity.BlockSize)
	}

	return fmt.Sprintf("%d blocks against root hash %s", size/verity.BlockSize, s.rootHash), nil
}

// checkClosure checks of each root that what it names is in it.
func (c *check) checkClosure(ctx context.Context) (string, error) {
	var seen []string
	for _, s := range c.slots {
		if p, ok := c.partition(s.Root()); ok && s.rootSize > 0 {
			text, err := c.checkRootClosure(ctx, p)
			if err != nil {
				return "", err
			}
			seen = append(seen, text)
		}
	}
	if len(seen) == 0 {
		return "no root", nil
	}
	return strings.Join(seen, ", "), nil
}

// checkRootClosure unpacks a root into a temporary directory, which needs no privileges: owners
// and device nodes are not looked at.
func (c *check) checkRootClosure(ctx context.Context, p gpt.Partition) (string, error) {
	dir, err := os.MkdirTemp("", "firstlight-verify-")
	if err != nil {
		return "", err
	}
	defer remove(dir)

	root := filepath.Join(dir, "root")
	// The image may be a file without a name; /dev/fd leads to it all the same.
	args := append(c.Unsquashfs[1:len(c.Unsquashfs):len(c.Unsquashfs)], "-no-progress", "-quiet", "-no-xattrs", "-ignore-errors", "-no-exit-code",
		"-offset", fmt.Sprint(p.Offset()), "-dest", root, "/dev/fd/3")
	cmd := exec.CommandContext(ctx, c.Unsquashfs[0], args...)
	cmd.ExtraFiles = []*os.File{c.image.File}
	if said, err := cmd.CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if _, missing := exec.LookPath(c.Unsquashfs[0]); missing != nil {
			return "", fmt.Errorf("unpack root: %w; install squashfs-tools", missing)
		}

		c.addFinding(p.Name, -1, "cannot be unpacked: %v: %.500s", err, bytes.TrimSpace(said))
		return "nothing", nil
	}

	tree, err := closure.Load(os.DirFS(root))
	if err != nil {
		return "", err
	}

	finders := closure.Finders()
	misses, err := closure.Check(tree, finders)
	if err != nil {
		c.addFinding(p.Name, -1, "%v", err)
	}

	for _, m := range misses {
		c.addFinding(p.Name, -1, "%s", m)
	}

	return fmt.Sprintf("%d names by %d rules", tree.Len(), len(finders)), nil
}

// remove deletes a tree that may have directories nobody may write to.
func remove(dir string) {
	_ = filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(name, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(dir)
}
