package stick

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"unicode/utf16"
)

// Table is a GUID partition table as read from a disk (UEFI 2.10, 5.3).
type Table struct {
	GUID        string // of the disk, lower case
	SectorBytes int64
	FirstUsable int64 // byte offset
	Backup      bool  // the first copy was damaged, this is the second
	Entries     []Entry
}

// Entry is a used entry of the table; offsets are bytes from the disk's start.
type Entry struct {
	Index int // from 1
	Type  string
	GUID  string
	Name  string
	Start int64
	Bytes int64
}

// ErrNoTable says that a disk has no GUID partition table, or none that can be trusted.
var ErrNoTable = errors.New("no GUID partition table")

// ReadTable reads the table of a disk of diskBytes bytes with sectors of sectorBytes. If
// the first copy is damaged the second is tried, at the end of the disk: a power cut may
// come while the first is rewritten.
func ReadTable(r io.ReaderAt, diskBytes, sectorBytes int64) (Table, error) {
	t, err := readTableAt(r, sectorBytes, sectorBytes)
	if err == nil {
		return t, nil
	}
	t, backupErr := readTableAt(r, diskBytes-sectorBytes, sectorBytes)
	if backupErr == nil {
		t.Backup = true
		return t, nil
	}
	return Table{}, err
}

// Limits of what is believed: the table of 128 entries of 128 bytes is what everybody
// writes; eight times as much is accepted.
const (
	headerBytes   = 92
	maxTableBytes = 128 << 10
)

func readTableAt(r io.ReaderAt, off, sector int64) (Table, error) {
	if off < sector || sector < 512 || sector > 64<<10 {
		return Table{}, ErrNoTable
	}
	head := make([]byte, sector)
	if _, err := r.ReadAt(head, off); err != nil {
		return Table{}, fmt.Errorf("read partition table at byte %d: %w", off, err)
	}
	le := binary.LittleEndian
	size := int64(le.Uint32(head[12:]))
	if !bytes.Equal(head[:8], []byte("EFI PART")) || size < headerBytes || size > sector {
		return Table{}, ErrNoTable
	}
	sum := le.Uint32(head[16:])
	sealed := bytes.Clone(head[:size])
	clear(sealed[16:20])
	if crc32.ChecksumIEEE(sealed) != sum {
		return Table{}, fmt.Errorf("%w: header at byte %d has a wrong checksum", ErrNoTable, off)
	}
	if own := le.Uint64(head[24:]); own > 1<<52 || int64(own)*sector != off {
		return Table{}, fmt.Errorf("%w: header at byte %d says it is in sector %d", ErrNoTable, off, own)
	}
	firstUsable, lba := le.Uint64(head[40:]), le.Uint64(head[72:])
	count, each := int64(le.Uint32(head[80:])), int64(le.Uint32(head[84:]))
	if each < 128 || each > 4096 || count < 1 || count > maxTableBytes/each || lba > 1<<40 || firstUsable > 1<<40 {
		return Table{}, fmt.Errorf("%w: header at byte %d names %d entries of %d bytes", ErrNoTable, off, count, each)
	}
	raw := make([]byte, count*each)
	if _, err := r.ReadAt(raw, int64(lba)*sector); err != nil {
		return Table{}, fmt.Errorf("read partition table at byte %d: %w", int64(lba)*sector, err)
	}
	if crc32.ChecksumIEEE(raw) != le.Uint32(head[88:]) {
		return Table{}, fmt.Errorf("%w: entries at byte %d have a wrong checksum", ErrNoTable, int64(lba)*sector)
	}
	t := Table{GUID: guid(head[56:72]), SectorBytes: sector, FirstUsable: int64(firstUsable) * sector}
	for i := range count {
		e := raw[i*each : (i+1)*each]
		first, last := le.Uint64(e[32:]), le.Uint64(e[40:])
		if bytes.Equal(e[:16], make([]byte, 16)) || last < first || last > 1<<40 {
			continue
		}
		t.Entries = append(t.Entries, Entry{
			Index: int(i) + 1, Type: guid(e[:16]), GUID: guid(e[16:32]), Name: name(e[56:128]),
			Start: int64(first) * sector, Bytes: int64(last-first+1) * sector,
		})
	}
	return t, nil
}

// End returns the first byte behind the last partition.
func (t Table) End() int64 {
	end := t.FirstUsable
	for _, e := range t.Entries {
		end = max(end, e.Start+e.Bytes)
	}
	return end
}

// Entry returns the first entry with this name; ok is false if there is none.
func (t Table) Entry(name string) (e Entry, ok bool) {
	for _, e := range t.Entries {
		if e.Name == name {
			return e, true
		}
	}
	return Entry{}, false
}

// guid prints the mixed-endian form of UEFI (appendix A) in lower case.
func guid(b []byte) string {
	le := binary.LittleEndian
	return fmt.Sprintf("%08x-%04x-%04x-%x-%x", le.Uint32(b), le.Uint16(b[4:]), le.Uint16(b[6:]), b[8:10], b[10:16])
}

func name(b []byte) string {
	var u []uint16
	for i := 0; i+1 < len(b); i += 2 {
		c := binary.LittleEndian.Uint16(b[i:])
		if c == 0 {
			break
		}
		u = append(u, c)
	}
	return string(utf16.Decode(u))
}
