package disk

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/diskfs/go-diskfs/backend/file"
	diskgpt "github.com/diskfs/go-diskfs/partition/gpt"
)

// PartPath is the file in which an image comes into being, until it is complete.
func PartPath(path string) string { return path + ".part" }

// Write makes the image file at path, sparse. A file that is there already is replaced
// only when the new one is complete.
func Write(ctx context.Context, path string, l Layout) error {
	if err := os.Remove(PartPath(path)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("write image: %w", err)
	}
	return Finish(ctx, path, l)
}

// Finish is Write around the content that Part(path) holds already, and with its permissions.
func Finish(ctx context.Context, path string, l Layout) error {
	image, err := os.OpenFile(PartPath(path), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	defer os.Remove(PartPath(path))

	defer image.Close()
	if err := l.write(ctx, image); err != nil {
		return fmt.Errorf("write image %s: %w", path, err)
	}
	if err := image.Close(); err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	// Where a rename replaces a file, ext4 has all of the new one written to the disk first.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("write image: %w", err)
	}
	if err := os.Rename(PartPath(path), path); err != nil {
		return fmt.Errorf("write image: %w", err)
	}

	return nil
}

func (l Layout) write(ctx context.Context, image *os.File) error {
	size := l.End()
	if err := image.Truncate(size); err != nil {
		return err
	}

	table := &diskgpt.Table{
		GUID:               strings.ToUpper(l.GUID),
		ProtectiveMBR:      true,
		LogicalSectorSize:  512,
		PhysicalSectorSize: 512,
	}
	at := int64(Align)
	for i, p := range l.Partitions {
		if p.Size <= 0 || p.Size%Align != 0 {
			return fmt.Errorf("partition %s: a size of %d bytes is not a multiple of %d", p.Name, p.Size, Align)
		}

		least, err := p.Content.minSize()
		if err != nil {
			return fmt.Errorf("partition %s: %w", p.Name, err)
		}
		if least > p.Size {
			return fmt.Errorf(
				"partition %s: its content needs %d bytes, it has %d; give it a larger size", p.Name, least, p.Size,
			)
		}
		if err := p.Content.write(ctx, image, at, p.Size); err != nil {
			return fmt.Errorf("partition %s: %w", p.Name, err)
		}

		table.Partitions = append(table.Partitions, &diskgpt.Partition{
			Index:      cmp.Or(p.Number, i+1),
			Start:      uint64(at / 512),
			End:        uint64((at+p.Size)/512 - 1),
			Size:       uint64(p.Size),
			Type:       diskgpt.Type(strings.ToUpper(p.Type)),
			GUID:       strings.ToUpper(p.GUID),
			Name:       p.Name,
			Attributes: p.Attributes,
		})
		at += p.Size
	}

	writable, err := file.New(image, false).Writable()
	if err != nil {
		return err
	}
	if err := table.Write(writable, size); err != nil {
		return fmt.Errorf("partition table: %w", err)
	}
	if len(l.BootCode) > bootCodeEnd {
		return fmt.Errorf("boot code of %d bytes; sector 0 has room for %d", len(l.BootCode), bootCodeEnd)
	}

	_, err = image.WriteAt(l.BootCode, 0)
	return err
}

// CopySparse copies r to the beginning of w, which reads as zeros there, and leaves blocks of zeros out. It returns how
// many bytes r has: a file is to be truncated to that, as it may end with zeros.
func CopySparse(ctx context.Context, w io.WriterAt, r io.Reader) (int64, error) {
	buf, zero := make([]byte, 1<<20), make([]byte, 64<<10)
	for at := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}

		n, err := io.ReadFull(r, buf)
		for i := 0; i < n; i += len(zero) {
			chunk := buf[i:min(i+len(zero), n)]
			if bytes.Equal(chunk, zero[:len(chunk)]) {
				continue
			}
			if _, err := w.WriteAt(chunk, at+int64(i)); err != nil {
				return 0, err
			}
		}

		at += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return at, nil
		}
		if err != nil {
			return 0, err
		}
	}
}
