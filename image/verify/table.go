package verify

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/media"
)

// wantedPartitions is the stick's table: what must be there, in this order (docs/disk.md).
var wantedPartitions = [...]struct {
	number     int
	name, kind string
}{
	{1, stick.PartitionBIOS, gpt.TypeBIOSBoot},
	{2, stick.PartitionESP, gpt.TypeESP},
	{3, stick.PartitionSite, gpt.TypeBasicData},
	{4, stick.PartitionRootA, gpt.TypeLinuxRoot},
	{5, stick.PartitionRootB, gpt.TypeLinuxRoot},
	{stick.NumberBootA, stick.PartitionBootA, gpt.TypeLinuxBoot},
	{stick.NumberBootB, stick.PartitionBootB, gpt.TypeLinuxBoot},
}

func (c *check) partitionTable(context.Context) (string, error) {
	mbr := make([]byte, gpt.SectorSize)
	if _, err := c.image.ReadAt(mbr, 0); err != nil {
		c.addFinding("", 0, "read sector 0: %v", err)
		return "nothing", nil
	}

	le := binary.LittleEndian
	if mbr[510] != 0x55 || mbr[511] != 0xaa || mbr[450] != 0xee || le.Uint32(mbr[454:]) != 1 {
		c.addFinding("", 0, "no protective MBR")
	}

	primary, err := gpt.ReadPrimary(c.image)
	if err != nil {
		c.addFinding("", gpt.SectorSize, "primary table: %v", err)
	}

	backup, err := gpt.ReadBackup(c.image, c.image.Size)
	if err != nil {
		c.addFinding("", c.image.Size-gpt.SectorSize, "backup table: %v", err)
	}

	c.table = primary
	if c.table == nil {
		c.table = backup
	}

	if c.table == nil {
		return "no table", nil
	}

	if primary != nil && backup != nil {
		if primary.GUID != backup.GUID || !reflect.DeepEqual(primary.Partitions, backup.Partitions) {
			c.addFinding("", gpt.SectorSize, "the two tables differ")
		}
		if primary.OtherLBA != backup.MyLBA || backup.OtherLBA != primary.MyLBA {
			c.addFinding("", gpt.SectorSize, "the two tables do not name each other")
		}
	}

	if last := uint64(c.image.Size/gpt.SectorSize) - 1 - gpt.BackupSectors; c.table.LastLBA > last {
		c.addFinding("", gpt.SectorSize, "usable sectors end at %d, the disk has room up to %d", c.table.LastLBA, last)
	}

	for _, want := range wantedPartitions {
		i := slices.IndexFunc(c.table.Partitions, func(p gpt.Partition) bool { return p.Index == want.number })
		if i < 0 {
			c.addFinding(want.name, -1, "there is no partition %d", want.number)
			continue
		}

		p := c.table.Partitions[i]
		if p.Name != want.name || p.Type.String() != want.kind {
			c.addFinding(want.name, -1, "entry %d is %q of type %s; want type %s", p.Index, p.Name, p.Type, want.kind)
		}

		if p.GUID == (gpt.GUID{}) {
			c.addFinding(want.name, -1, "it has no GUID")
		}

		if p.First%2048 != 0 {
			c.addFinding(want.name, -1, "it starts at sector %d, not on a MiB", p.First)
		}
	}

	for _, name := range []func(stick.Slot) string{stick.Slot.Boot, stick.Slot.Root} {
		a, okA := c.table.Find(name(stick.SlotA))
		b, okB := c.table.Find(name(stick.SlotB))
		if okA && okB && a.Size() != b.Size() {
			c.addFinding(b.Name, -1, "%d bytes; an update needs the %d of %s", b.Size(), a.Size(), a.Name)
		}
	}

	return fmt.Sprintf("%d partitions, two copies", len(c.table.Partitions)), nil
}

// partition finds a partition; partitionTable has reported one that is missing.
func (c *check) partition(name string) (gpt.Partition, bool) {
	if c.table == nil {
		return gpt.Partition{}, false
	}
	return c.table.Find(name)
}

func (c *check) fatSystems(context.Context) (string, error) {
	c.files = map[string]map[string][]byte{}
	var seen []string
	for _, name := range []string{stick.PartitionESP, stick.PartitionSite, stick.PartitionBootA, stick.PartitionBootB} {
		p, ok := c.partition(name)
		if !ok || name == stick.PartitionBootB && c.isEmpty(p) {
			continue
		}

		v, err := fat.Open(c.sectionOf(p))
		if err != nil {
			c.addFinding(name, 0, "%v", err)
			continue
		}

		for _, text := range v.Check() {
			c.addFinding(name, -1, "%s", text)
		}

		list, err := v.List()
		if err != nil {
			continue // Check has said it
		}

		c.files[name] = map[string][]byte{}
		for _, e := range list {
			if e.Dir {
				continue
			}

			b, err := v.ReadFile(e.Path)
			if err != nil {
				c.addFinding(name, -1, "%v", err)
				continue
			}

			c.files[name]["/"+e.Path] = b
		}

		seen = append(seen, fmt.Sprintf("%s with %d files", name, len(c.files[name])))
	}

	return strings.Join(seen, ", "), nil
}

// isEmpty reports whether a partition begins with a sector of zeros, as the slot does that no update was written to.
func (c *check) isEmpty(p gpt.Partition) bool {
	sector := make([]byte, gpt.SectorSize)
	_, err := c.image.ReadAt(sector, p.Offset())
	return err == nil && bytes.Equal(sector, make([]byte, gpt.SectorSize))
}

// checkHandouts checks SHA256SUMS and the block map, where they lie beside the image.
func (c *check) checkHandouts(ctx context.Context) (string, error) {
	seen := []string{}
	raw := media.RawPath(c.image.Path)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(raw), media.SumsName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		seen = append(seen, "no "+media.SumsName)
	case err != nil:
		return "", err
	default:
		n, err := c.checkSums(ctx, filepath.Dir(raw), string(text))
		if err != nil {
			return "", err
		}
		seen = append(seen, fmt.Sprintf("%s of %d files", media.SumsName, n))
	}

	text, err = os.ReadFile(raw + media.SuffixBmap)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return strings.Join(append(seen, "no block map"), ", "), nil
	case err != nil:
		return "", err
	}

	b, err := media.ParseBmap(text)
	if err != nil {
		c.addFinding("", -1, "%s: %v", raw+media.SuffixBmap, err)
		return strings.Join(seen, ", "), nil
	}
	if b.ImageSize != c.image.Size {
		c.addFinding(
			"", -1, "%s is for an image of %d bytes, this one has %d", raw+media.SuffixBmap, b.ImageSize, c.image.Size,
		)
		return strings.Join(seen, ", "), nil
	}

	bad, err := b.Check(ctx, c.image)
	if err != nil {
		return "", err
	}

	for _, r := range bad {
		e := b.Extent(r)
		name, start := c.partitionAt(e.Start)
		c.addFinding(
			name, e.Start-start, "these %d bytes differ from the block map (blocks %d to %d of the image)",
			e.End-e.Start, r.First, r.Last,
		)
	}

	return strings.Join(append(seen, fmt.Sprintf("block map of %d blocks", b.MappedBlocks())), ", "), nil
}

// partitionAt names the partition that holds a byte of the disk, and where it starts.
func (c *check) partitionAt(offset int64) (name string, start int64) {
	if c.table != nil {
		for _, p := range c.table.Partitions {
			if p.Offset() <= offset && offset < p.Offset()+p.Size() {
				return p.Name, p.Offset()
			}
		}
	}
	return "", 0
}

// checkSums compares the listed files that are there; the image itself must be listed.
func (c *check) checkSums(ctx context.Context, dir, text string) (int, error) {
	sums, err := media.ParseSums(text)
	if err != nil {
		c.addFinding("", -1, "%v", err)
		return 0, nil
	}

	if name := filepath.Base(c.image.Path); sums[name] == "" {
		c.addFinding("", -1, "%s does not list %s", media.SumsName, name)
	}

	n := 0
	for name, want := range sums {
		got, err := media.DigestFile(ctx, filepath.Join(dir, filepath.Base(name)))
		if errors.Is(err, fs.ErrNotExist) {
			continue // not everything is copied along
		}
		if err != nil {
			return n, err
		}

		if n++; got != want {
			c.addFinding("", -1, "%s has sha256 %s, %s says %s", name, got, media.SumsName, want)
		}
	}

	return n, nil
}
