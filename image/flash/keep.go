package flash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/media"
)

// ReadStick returns the table of a medium on which an appliance keeps its state: that of a stick with a DATA partition.
// Nil if the medium is none. One sound copy of the table is enough. An error says that the medium cannot be read, so
// that nobody knows what would be lost.
func ReadStick(m io.ReaderAt, size int64) (*gpt.Table, error) {
	for _, read := range []func() (*gpt.Table, error){
		func() (*gpt.Table, error) { return gpt.ReadPrimary(m) },
		func() (*gpt.Table, error) { return gpt.ReadBackup(m, size/gpt.SectorSize*gpt.SectorSize) },
	} {
		t, err := read()
		switch {
		case err == nil && isStick(t):
			return t, nil
		case err != nil && !errors.Is(err, gpt.ErrNoTable):
			return nil, fmt.Errorf("read what the medium holds: %w", err)
		}
	}
	return nil, nil
}

// isStick reports whether a table is that of a stick with DATA.
func isStick(t *gpt.Table) bool {
	for name, kind := range map[string]string{
		stick.PartitionBIOS:  gpt.TypeBIOSBoot,
		stick.PartitionESP:   gpt.TypeESP,
		stick.PartitionSite:  gpt.TypeBasicData,
		stick.PartitionRootA: gpt.TypeLinuxRoot,
		stick.PartitionData:  gpt.TypeLinux,
	} {
		p, ok := t.Find(name)
		if !ok || p.Type.String() != kind {
			return false
		}
	}
	return true
}

// NewKeepPlan plans to write an image onto a stick that an appliance has run from, by its table (ReadStick): what it
// starts from is written again, DATA and every GUID stay. SITE stays unless site is not nil (MakeSite), or the image
// has a site.yaml of its own. What does not fit beside DATA is an error, and nothing is written.
func NewKeepPlan(ctx context.Context, image *media.Image, site []byte, size int64, old *gpt.Table) (*Plan, error) {
	p, err := readImage(ctx, image, size)
	if err != nil {
		return nil, err
	}

	keeps := []string{stick.PartitionData}
	brings, err := hasSite(image, p.Table)
	if err != nil {
		return nil, err
	}
	if !brings && site == nil {
		keeps = append(keeps, stick.PartitionSite)
	}

	table, err := keepTable(old, p.Table, size)
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", image.Path, err)
	}

	others, pieces := p.replaceSite(site)
	written := slices.DeleteFunc(others, func(part gpt.Partition) bool { return slices.Contains(keeps, part.Name) })

	p.Kept, p.Table = keeps, table
	if err := p.limitTo(written); err != nil {
		return nil, err
	}

	head, tail, err := p.encode()
	if err != nil {
		return nil, err
	}

	esp, _ := table.Find(stick.PartitionESP)
	start := piece{"the ESP's first block", make([]byte, p.Map.BlockSize), esp.Offset()}
	if _, err := image.ReadAt(start.data, start.at); err != nil {
		return nil, fmt.Errorf("read the ESP of %s: %w", image.Path, err)
	}

	// No firmware starts it meanwhile: there is no boot code, and no file system on the ESP.
	p.clear = []piece{{"the boot code", make([]byte, gpt.SectorSize), 0}, {start.name, make([]byte, len(start.data)), start.at}}
	p.held = []piece{start}
	p.last = append(pieces,
		piece{"the backup table", tail, p.size - int64(len(tail))},
		piece{"the table", head[gpt.SectorSize:], gpt.SectorSize},
		start,
		piece{"the boot code", head[:gpt.SectorSize], 0},
	)
	return p, nil
}

// hasSite reports whether the image brings a site document.
func hasSite(image *media.Image, table *gpt.Table) (bool, error) {
	part, ok := table.Find(stick.PartitionSite)
	if !ok {
		return false, fmt.Errorf("plan %s: it has no partition %s, so it is no image of a stick", image.Path, stick.PartitionSite)
	}

	volume, err := fat.Open(io.NewSectionReader(image, part.Offset(), part.Size()))
	if err != nil {
		return false, fmt.Errorf("read %s of %s: %w", stick.PartitionSite, image.Path, err)
	}

	files, err := volume.List()
	if err != nil {
		return false, fmt.Errorf("read %s of %s: %w", stick.PartitionSite, image.Path, err)
	}

	return slices.ContainsFunc(files, func(e fat.Entry) bool { return strings.EqualFold(e.Path, siteFile) }), nil
}

// forget is the way out where something cannot be kept.
const forget = "save what is on DATA, or give it up with --forget"

// keepTable is the table of a stick after an image was written beside its DATA: the image's partitions with the GUIDs
// that they had, ROOT-B with what is left before DATA, and DATA.
func keepTable(old, image *gpt.Table, size int64) (*gpt.Table, error) {
	data, _ := old.Find(stick.PartitionData)
	fit, err := old.Resize(size)
	if err != nil {
		return nil, err
	}

	fit.Partitions = nil
	for _, p := range image.Partitions {
		was, known := old.Find(p.Name)
		switch {
		case p.Name == stick.PartitionRootB && (!known || p.First >= data.First):
			continue
		case p.Name == stick.PartitionRootB:
			p.Last = min(p.Last, data.First-1)
		case !known && (p.Name == stick.PartitionBootA || p.Name == stick.PartitionBootB):
			was = p // of a version that had none; the room comes out of ROOT-B
		case !known:
			return nil, fmt.Errorf("the stick has no partition %s: %s", p.Name, forget)
		case p.Name == stick.PartitionSite && (p.First != was.First || p.Last != was.Last):
			return nil, fmt.Errorf("the image has %s at another place than the stick: %s", p.Name, forget)
		case p.Last >= data.First:
			return nil, fmt.Errorf("%s of the image needs %d MiB more than the stick has before DATA: %s", p.Name,
				(p.Last-data.First)*gpt.SectorSize>>20+1, forget)
		}

		p.GUID = was.GUID
		fit.Partitions = append(fit.Partitions, p)
	}

	if slices.ContainsFunc(fit.Partitions, func(p gpt.Partition) bool { return p.Index == data.Index }) {
		return nil, fmt.Errorf("the image has a partition %d of its own, which is DATA on the stick: %s", data.Index, forget)
	}

	fit.Partitions = append(fit.Partitions, data)
	return fit, nil
}
