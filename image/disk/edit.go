package disk

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/gpt"
)

// CopyFAT writes one FAT partition of an image to the empty file out, as large as it is, with
// files put into it or replaced: what an owner does who opens the stick on a laptop. The image
// is only read. It returns where on the disk the partition begins, in bytes.
func CopyFAT(
	ctx context.Context, image io.ReaderAt, partition string, out *os.File, put ...File,
) (at int64, err error) {
	table, err := gpt.ReadPrimary(image)
	if err != nil {
		return 0, fmt.Errorf("copy partition %s: %w", partition, err)
	}

	p, ok := table.Find(partition)
	if !ok {
		return 0, fmt.Errorf("copy partition %s: the image has none of that name", partition)
	}

	volume, err := fat.Open(io.NewSectionReader(image, p.Offset(), p.Size()))
	if err != nil {
		return 0, fmt.Errorf("copy partition %s: %w", partition, err)
	}
	files, err := filesOf(volume, put)
	if err != nil {
		return 0, fmt.Errorf("copy partition %s: %w", partition, err)
	}

	if err := out.Truncate(p.Size()); err != nil {
		return 0, fmt.Errorf("copy partition %s: %w", partition, err)
	}
	if err := (FAT{Label: partition, VolumeID: volume.ID, Files: files}).write(ctx, out, 0, p.Size()); err != nil {
		return 0, fmt.Errorf("copy partition %s: %w", partition, err)
	}

	return p.Offset(), nil
}

// filesOf lists what a FAT file system holds, with put in the place of files of their names.
func filesOf(volume *fat.Volume, put []File) ([]File, error) {
	entries, err := volume.List()
	if err != nil {
		return nil, err
	}

	files := slices.Clone(put)
	for _, e := range entries {
		switch {
		case e.Dir:
			files = append(files, File{Path: e.Path + "/"})
		case !slices.ContainsFunc(put, func(f File) bool { return strings.EqualFold(e.Path, f.Path) }):
			content, err := volume.ReadFile(e.Path)
			if err != nil {
				return nil, err
			}
			files = append(files, File{
				Path: e.Path,
				Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
			})
		}
	}

	return files, nil
}
