// Package flash writes an image to a stick so that it either boots as it should or not at
// all. What must not be overwritten is refused by a pure function; the table comes last,
// so that a power cut leaves nothing that looks like a system; every stick gets GUIDs of
// its own; and what was written is read back from the medium.
package flash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/image/media"
)

// Medium is an opened device or file.
type Medium interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
}

// Progress is told how far a phase is, in bytes.
type Progress func(phase string, done, total int64)

// Phases in their order.
const (
	PhaseWrite  = "write"
	PhaseVerify = "verify"
)

// Plan is everything that is decided before the first byte is written.
type Plan struct {
	Map   media.Bmap // what of the image must be on the medium, without the tables
	Table *gpt.Table // for this medium
	Kept  []string   // partitions that stay as they are

	clear []piece // zeros that are written first
	held  []piece // what of Map is not copied, as the image has it: what is in last comes there
	last  []piece // in this order
	size  int64   // of the medium, bytes
	image *media.Image
}

// piece is bytes and where they belong on the medium.
type piece struct {
	name string
	data []byte
	at   int64
}

// edge is how much is cleared at both ends of the medium first: an old table or boot
// sector must not win while the new one is not there yet.
const edge = 1 << 20

// NewPlan reads the image and draws GUIDs from random. site, made by MakeSite, comes in the place
// of the image's SITE; nil leaves that. size is the medium's, in bytes. A block map beside the
// image must agree with it. All that is on the medium will be lost.
func NewPlan(ctx context.Context, image *media.Image, site []byte, size int64, random io.Reader) (*Plan, error) {
	p, err := readImage(ctx, image, size)
	if err != nil {
		return nil, err
	}
	if err := p.newGUIDs(random); err != nil {
		return nil, err
	}

	others, pieces := p.replaceSite(site)
	if err := p.limitTo(others); err != nil {
		return nil, err
	}

	head, tail, err := p.encode()
	if err != nil {
		return nil, err
	}

	p.clear = []piece{{"the old table", make([]byte, edge), 0}, {"the old table", make([]byte, edge), p.size - edge}}
	// Backup, primary, and only then the sector that firmware reads first.
	p.last = append(pieces,
		piece{"the backup table", tail, p.size - int64(len(tail))},
		piece{"the table", head[gpt.SectorSize:], gpt.SectorSize},
		piece{"the boot code", head[:gpt.SectorSize], 0},
	)
	return p, nil
}

// readImage is a plan with all of the image and its table, fitted to the medium.
func readImage(ctx context.Context, image *media.Image, size int64) (*Plan, error) {
	table, err := gpt.ReadPrimary(image)
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", image.Path, err)
	}

	b, err := media.MakeBmap(ctx, image.File, image.Size)
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", image.Path, err)
	}
	if err := checkBlockMap(ctx, image); err != nil {
		return nil, err
	}

	p := &Plan{Map: b, image: image, size: size / gpt.SectorSize * gpt.SectorSize}
	if p.Table, err = table.Resize(size); err != nil {
		return nil, fmt.Errorf("plan %s: %w", image.Path, err)
	}

	for _, part := range p.Table.Partitions {
		if part.Offset() < edge {
			return nil, fmt.Errorf("plan %s: its first partition starts at byte %d, before %d", image.Path, part.Offset(), edge)
		}
	}

	return p, nil
}

// limitTo leaves of the map what is in these partitions. What is in one of them and outside is an error.
func (p *Plan) limitTo(parts []gpt.Partition) error {
	all := p.Map.Ranges
	p.Map.Ranges = nil
	for _, r := range all {
		e := p.Map.Extent(r)
		for _, part := range parts {
			first, end := part.Offset(), part.Offset()+part.Size()
			switch {
			case e.End <= first || e.Start >= end:
			case e.Start < first || e.End > end:
				return fmt.Errorf("plan %s: its bytes %d to %d are in %s and outside", p.image.Path, e.Start, e.End, part.Name)
			default:
				p.Map.Ranges = append(p.Map.Ranges, r)
			}
		}
	}
	return nil
}

// checkBlockMap holds the image against the block map beside it, if there is one: whoever made
// it, with ranges of any length.
func checkBlockMap(ctx context.Context, image *media.Image) error {
	name := media.RawPath(image.Path) + media.SuffixBmap
	text, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}

	listed, err := media.ParseBmap(text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}

	var bad []media.Range
	if listed.ImageSize == image.Size {
		if bad, err = listed.Check(ctx, image); err != nil {
			return err
		}
	}

	if listed.ImageSize != image.Size || len(bad) > 0 {
		return fmt.Errorf(
			"%s differs from its block map %s: one of them is damaged or of another build; firstlight verify says what",
			image.Path, name,
		)
	}

	return nil
}

func (p *Plan) newGUIDs(random io.Reader) error {
	draw := func(g *gpt.GUID) error {
		if _, err := io.ReadFull(random, g[:]); err != nil {
			return fmt.Errorf("draw GUID: %w", err)
		}

		g[7] = g[7]&0x0f | 0x40 // version 4; the third field is little-endian on disk
		g[8] = g[8]&0x3f | 0x80 // RFC 9562 variant
		return nil
	}
	if err := draw(&p.Table.GUID); err != nil {
		return err
	}

	for i := range p.Table.Partitions {
		if err := draw(&p.Table.Partitions[i].GUID); err != nil {
			return err
		}
	}

	return nil
}

// encode makes the bytes of both ends: the image's boot code, the medium's own table.
func (p *Plan) encode() (head, tail []byte, err error) {
	sector := make([]byte, gpt.SectorSize)
	if _, err := p.image.ReadAt(sector, 0); err != nil {
		return nil, nil, fmt.Errorf("read boot code: %w", err)
	}

	start, end, err := p.Table.Encode()
	return append(gpt.ProtectiveMBR(sector, p.size), start...), end, err
}

// Bytes is how much will be written, without the tables.
func (p *Plan) Bytes() int64 {
	n := int64(0)
	for _, r := range p.Map.Ranges {
		e := p.Map.Extent(r)
		n += e.End - e.Start
	}
	return n
}

// Write carries the plan out. On an error, or when power fails, no firmware starts the medium. drop makes later reads
// come from the medium, not from memory.
func (p *Plan) Write(ctx context.Context, m Medium, drop func() error, progress Progress) error {
	for _, c := range p.clear {
		if err := writeSync(m, c.data, c.at); err != nil {
			return fmt.Errorf("clear %s at %d: %w", c.name, c.at, err)
		}
	}

	if err := p.copy(ctx, m, progress); err != nil {
		return err
	}
	if err := drop(); err != nil {
		return fmt.Errorf("drop caches: %w", err)
	}
	if err := p.verify(ctx, m, progress); err != nil {
		return err
	}

	for _, l := range p.last {
		if err := writeSync(m, l.data, l.at); err != nil {
			return fmt.Errorf("write %s at %d: %w", l.name, l.at, err)
		}
	}

	if err := drop(); err != nil {
		return fmt.Errorf("drop caches: %w", err)
	}

	for _, l := range p.last {
		got := make([]byte, len(l.data))
		if _, err := m.ReadAt(got, l.at); err != nil {
			return fmt.Errorf("read back %s at %d: %w", l.name, l.at, err)
		}
		if !bytes.Equal(got, l.data) {
			return fmt.Errorf("read back %s at %d: it differs from what was written; the medium is faulty", l.name, l.at)
		}
	}

	return nil
}

// overlay is a medium with pieces on it that are not written yet.
type overlay struct {
	io.ReaderAt
	pieces []piece
}

// ReadAt implements io.ReaderAt.
func (o overlay) ReadAt(b []byte, at int64) (int, error) {
	n, err := o.ReaderAt.ReadAt(b, at)
	for _, p := range o.pieces {
		p.put(b[:n], at, p.data)
	}
	return n, err
}

// put replaces what of the piece's place is in b, which begins at at.
func (p piece) put(b []byte, at int64, data []byte) {
	from, to := max(at, p.at), min(at+int64(len(b)), p.at+int64(len(data)))
	if from < to {
		copy(b[from-at:to-at], data[from-p.at:])
	}
}

// syncEvery bounds how much is only in memory, so that progress is that of the medium.
const syncEvery = 64 << 20

func (p *Plan) copy(ctx context.Context, m Medium, progress Progress) error {
	buf := make([]byte, 1<<20)
	total, done, since := p.Bytes(), int64(0), 0
	for _, r := range p.Map.Ranges {
		e := p.Map.Extent(r)
		for at := e.Start; at < e.End; {
			if err := ctx.Err(); err != nil {
				return err
			}

			n := min(int64(len(buf)), e.End-at)
			if _, err := p.image.ReadAt(buf[:n], at); err != nil {
				return fmt.Errorf("read image at %d: %w", at, err)
			}
			for _, h := range p.held {
				h.put(buf[:n], at, make([]byte, len(h.data)))
			}
			if _, err := m.WriteAt(buf[:n], at); err != nil {
				return fmt.Errorf("write at %d: %w", at, err)
			}

			at, done, since = at+n, done+n, since+int(n)
			if since >= syncEvery || done == total {
				if err := m.Sync(); err != nil {
					return fmt.Errorf("write before %d: %w", at, err)
				}
				since = 0
			}

			progress(PhaseWrite, done, total)
		}
	}

	return nil
}

// verify reads back range by range.
func (p *Plan) verify(ctx context.Context, m Medium, progress Progress) error {
	total, done := p.Bytes(), int64(0)
	one := p.Map
	for i, r := range p.Map.Ranges {
		one.Ranges = p.Map.Ranges[i : i+1]
		bad, err := one.Check(ctx, overlay{m, p.held})
		if err != nil {
			return fmt.Errorf("read back: %w", err)
		}

		e := p.Map.Extent(r)
		if len(bad) > 0 {
			return fmt.Errorf(
				"read back bytes %d to %d: they differ from what was written; the medium is faulty", e.Start, e.End,
			)
		}

		done += e.End - e.Start
		progress(PhaseVerify, done, total)
	}

	return nil
}

func writeSync(m Medium, data []byte, at int64) error {
	if _, err := m.WriteAt(data, at); err != nil {
		return err
	}
	return m.Sync()
}

// Open opens a device for itself alone: the kernel refuses when it is mounted or part of
// something. The returned function drops what is cached of it.
func Open(path string) (f *os.File, drop func() error, err error) {
	f, err = os.OpenFile(path, os.O_RDWR|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open device: %w", err)
	}

	drop = func() error {
		if err := f.Sync(); err != nil {
			return err
		}
		if err := unix.IoctlSetInt(
			int(f.Fd()), unix.BLKFLSBUF, 0,
		); err != nil && !errors.Is(err, unix.ENOTTY) && !errors.Is(err, unix.EACCES) {
			return err
		}
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	}
	return f, drop, nil
}

// RereadTable asks the kernel to look at the new table. It may refuse; the table is there all
// the same at the next insertion.
func RereadTable(f *os.File) {
	_ = unix.IoctlSetInt(int(f.Fd()), unix.BLKRRPART, 0)
}
