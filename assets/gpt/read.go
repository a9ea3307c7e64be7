package gpt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"unicode/utf16"
)

// ErrNoTable says that there is no table, or none that can be trusted; a disk that cannot
// be read gives another error.
var ErrNoTable = errors.New("no GUID partition table")

// fault says what is wrong with the bytes of a table.
type fault string

func (f fault) Error() string        { return string(f) }
func (f fault) Is(target error) bool { return target == ErrNoTable }

func faultErrorf(format string, args ...any) error { return fault(fmt.Sprintf(format, args...)) }

// maxArray is how many bytes of entries are believed: eight times what everybody writes.
const maxArray = 128 << 10

// Read reads the copy whose header is in sector lba of a disk with sectors of sector
// bytes. Checksums and limits hold, and every partition ends behind its start; otherwise
// the table may say what it likes: it may be any disk's.
func Read(r io.ReaderAt, lba uint64, sector int64) (*Table, error) {
	if lba < 1 || lba > 1<<40 || sector < SectorSize || sector > 64<<10 {
		return nil, faultErrorf("read GPT header at sector %d of %d bytes: no disk has one there", lba, sector)
	}

	header := make([]byte, sector)
	if _, err := r.ReadAt(header, int64(lba)*sector); err != nil {
		return nil, fmt.Errorf("read GPT header at sector %d: %w", lba, err)
	}

	t, sum, err := parseHeader(header, lba)
	if err != nil {
		return nil, fmt.Errorf("GPT header at sector %d: %w", lba, err)
	}

	array := make([]byte, t.Slots*t.EntrySize)
	if _, err := r.ReadAt(array, int64(t.EntriesLBA)*sector); err != nil {
		return nil, fmt.Errorf("read GPT entries at sector %d: %w", t.EntriesLBA, err)
	}
	if got := crc32.ChecksumIEEE(array); got != sum {
		return nil, faultErrorf("GPT entries at sector %d: checksum is %08x, header says %08x", t.EntriesLBA, got, sum)
	}

	for i := range t.Slots {
		if p, used := parseEntry(array[i*t.EntrySize:], i+1); used {
			t.Partitions = append(t.Partitions, p)
		}
	}

	return t, nil
}

// ReadPrimary reads the copy at the start of a disk such as we write: sectors of
// SectorSize, entries of the usual size, partitions that do not overlap.
func ReadPrimary(r io.ReaderAt) (*Table, error) { return readOwnCopy(r, 1) }

// ReadBackup reads the copy in the last sectors of a disk of size bytes, as ReadPrimary.
func ReadBackup(r io.ReaderAt, size int64) (*Table, error) {
	if size < (PrimarySectors+BackupSectors)*SectorSize {
		return nil, fmt.Errorf("read backup GPT: a disk of %d bytes has no room for one", size)
	}
	return readOwnCopy(r, uint64(size/SectorSize)-1)
}

func readOwnCopy(r io.ReaderAt, lba uint64) (*Table, error) {
	t, err := Read(r, lba, SectorSize)
	if err != nil {
		return nil, err
	}
	if t.EntrySize != entrySize {
		return nil, faultErrorf(
			"GPT header at sector %d: entries of %d bytes; only %d are in use anywhere", lba, t.EntrySize, entrySize,
		)
	}

	return t, t.check()
}

// parseHeader returns the table without its partitions, and the checksum of the entries.
func parseHeader(h []byte, lba uint64) (*Table, uint32, error) {
	le := binary.LittleEndian
	if string(h[:8]) != signature {
		return nil, 0, ErrNoTable
	}

	size := le.Uint32(h[12:])
	if size < headerSize || size > uint32(len(h)) {
		return nil, 0, faultErrorf("header size %d is not within %d and %d", size, headerSize, len(h))
	}

	sum := bytes.Clone(h[:size])
	clear(sum[16:20])
	if got, want := crc32.ChecksumIEEE(sum), le.Uint32(h[16:]); got != want {
		return nil, 0, faultErrorf("checksum is %08x, header says %08x", got, want)
	}

	t := &Table{
		MyLBA:      le.Uint64(h[24:]),
		OtherLBA:   le.Uint64(h[32:]),
		FirstLBA:   le.Uint64(h[40:]),
		LastLBA:    le.Uint64(h[48:]),
		EntriesLBA: le.Uint64(h[72:]),
	}
	copy(t.GUID[:], h[56:72])
	count, each := int64(le.Uint32(h[80:])), int64(le.Uint32(h[84:]))
	const beyond = 1 << 40 // sectors that no disk has
	switch {
	case t.MyLBA != lba:
		return nil, 0, faultErrorf("it says it is at sector %d", t.MyLBA)
	case each < entrySize || each > 4096 || count < 1 || count > maxArray/each:
		return nil, 0, faultErrorf("%d entries of %d bytes are not believable", count, each)
	case t.FirstLBA > beyond || t.LastLBA > beyond || t.EntriesLBA > beyond:
		return nil, 0, faultErrorf(
			"usable sectors %d to %d and entries at %d are beyond any disk", t.FirstLBA, t.LastLBA, t.EntriesLBA,
		)
	}

	t.Slots, t.EntrySize = int(count), int(each)
	return t, le.Uint32(h[88:]), nil
}

// parseEntry reads one entry; one without a type, or that ends before it starts, is not used.
func parseEntry(e []byte, index int) (p Partition, used bool) {
	le := binary.LittleEndian
	p = Partition{Index: index, First: le.Uint64(e[32:]), Last: le.Uint64(e[40:]), Attributes: le.Uint64(e[48:])}
	copy(p.Type[:], e[0:16])
	copy(p.GUID[:], e[16:32])
	name := make([]uint16, 0, 36)
	for c := e[56:entrySize]; len(c) > 0; c = c[2:] {
		u := le.Uint16(c)
		if u == 0 {
			break
		}
		name = append(name, u)
	}

	p.Name = string(utf16.Decode(name))
	return p, p.Type != GUID{} && p.First <= p.Last && p.Last <= 1<<40
}
