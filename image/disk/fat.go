package disk

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/fat32"

	"firstlight.dev/firstlight/assets/fat"
)

// leastFAT is the smallest partition that firmware takes for FAT32: below 65525 clusters
// of 512 bytes it would be read as FAT16 (Microsoft, FAT specification, section 3.5).
const leastFAT = 34 << 20

func (f FAT) minSize() (int64, error) { return leastFAT, nil }

// write makes the file system with go-diskfs and mends what that leaves wrong.
func (f FAT) write(ctx context.Context, image *os.File, at, size int64) error {
	files, err := f.sortedFiles()
	if err != nil {
		return err
	}

	volume, err := fat32.Create(file.New(image, false), size, at, 512, f.Label, true)
	if err != nil {
		return fmt.Errorf("make FAT32: %w", err)
	}

	buf := make([]byte, 4<<20) // go-diskfs writes the table once for each Write call
	made := map[string]bool{"/": true, ".": true}
	for _, one := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := mkdirAll(volume, made, path.Dir(one.Path)); err != nil {
			return err
		}
		if strings.HasSuffix(one.Path, "/") {
			continue
		}
		if err := f.copy(volume, one, buf); err != nil {
			return fmt.Errorf("write %s: %w", one.Path, err)
		}
	}

	region := fat.Region{ReaderAt: io.NewSectionReader(image, at, size), WriterAt: io.NewOffsetWriter(image, at)}
	if err := fat.Repair(region, f.VolumeID); err != nil {
		return fmt.Errorf("repair FAT32: %w", err)
	}

	return nil
}

// sortedFiles gives the files in the order of their paths, so that the order of the input does
// not matter, and refuses names that FAT cannot tell apart.
func (f FAT) sortedFiles() ([]File, error) {
	files := slices.SortedFunc(slices.Values(f.Files), func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	seen := map[string]string{}
	for _, one := range files {
		key := strings.ToUpper(strings.TrimSuffix(one.Path, "/"))
		if key == "" || path.IsAbs(one.Path) || path.Clean(one.Path) != strings.TrimSuffix(one.Path, "/") {
			return nil, fmt.Errorf("file %q: want a clean path without a leading slash", one.Path)
		}
		if other, ok := seen[key]; ok {
			return nil, fmt.Errorf("files %s and %s have one name on FAT", other, one.Path)
		}

		seen[key] = one.Path
	}

	return files, nil
}

func mkdirAll(volume *fat32.FileSystem, made map[string]bool, dir string) error {
	if made[dir] {
		return nil
	}
	if err := mkdirAll(volume, made, path.Dir(dir)); err != nil {
		return err
	}

	made[dir] = true
	if err := volume.Mkdir("/" + dir); err != nil {
		return fmt.Errorf("make directory %s: %w", dir, err)
	}

	return nil
}

func (f FAT) copy(volume *fat32.FileSystem, one File, buf []byte) error {
	r, err := one.Open()
	if err != nil {
		return err
	}
	defer r.Close()

	w, err := volume.OpenFile("/"+one.Path, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return err
	}
	// The wrappers hide ReadFrom and WriteTo, which would choose their own small buffer.
	if _, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, buf); err != nil {
		return err
	}

	return w.Close()
}
