package flash

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/media"
)

// siteFile is the site document on the SITE partition.
const siteFile = "site.yaml"

// MakeSite makes the SITE partition of an image with document as its site.yaml: a FAT file system, as long as the
// partition is (64 MiB on a stick). The document holds passwords: it is in no file that has a name.
func MakeSite(ctx context.Context, image *media.Image, document []byte) ([]byte, error) {
	f, err := os.CreateTemp("", "firstlight-site-")
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", stick.PartitionSite, err)
	}
	defer f.Close()

	if err := os.Remove(f.Name()); err != nil {
		return nil, fmt.Errorf("make %s: %w", stick.PartitionSite, err)
	}

	put := disk.File{
		Path: siteFile,
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(document)), nil },
	}
	if _, err := disk.CopyFAT(ctx, image, stick.PartitionSite, f, put); err != nil {
		return nil, fmt.Errorf("make %s of %s: %w", stick.PartitionSite, image.Path, err)
	}

	content, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<40))
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", stick.PartitionSite, err)
	}

	return content, nil
}

// replaceSite returns the partitions that are copied from the image, and what is written in the place of its SITE.
func (p *Plan) replaceSite(site []byte) (copied []gpt.Partition, pieces []piece) {
	copied = slices.Clone(p.Table.Partitions)
	at, ok := p.Table.Find(stick.PartitionSite)
	if site == nil || !ok {
		return copied, nil
	}

	copied = slices.DeleteFunc(copied, func(part gpt.Partition) bool { return part.Name == at.Name })
	return copied, []piece{{stick.PartitionSite, site, at.Offset()}}
}
