// Package gpt reads and writes GUID partition tables byte by byte: both copies, every
// checksum. Verify needs to look at each copy on its own, flash needs the bytes of a
// table in its hands to write them in a chosen order and to move the backup to the end of
// a larger medium, and the boot reads the tables of whatever disks the machine has.
// Source: UEFI specification 2.10, section 5.
package gpt

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"strings"
	"unicode/utf16"
)

// Partition types that occur on our disks.
const (
	TypeBIOSBoot  = "21686148-6449-6e6f-744e-656564454649"
	TypeESP       = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"
	TypeBasicData = "ebd0a0a2-b9e5-4433-87c0-68b6b72699c7"
	TypeLinux     = "0fc63daf-8483-4772-8e79-3d69d8477de4"
	TypeLinuxRoot = "4f68bce3-e8cd-4db1-96e7-fbcaf984b709" // root file system, x86-64
	TypeLinuxBoot = "bc13c2ff-59e6-4262-a352-b275fd6f7172" // kernels and initramfs; no other system shows it
)

// SectorSize is the logical sector size of the disks we write, in bytes.
const SectorSize = 512

const (
	headerSize   = 92
	entrySize    = 128
	entryCount   = 128
	arraySectors = entryCount * entrySize / SectorSize
)

// PrimarySectors is how many sectors at the start of a disk belong to the protective MBR
// and the primary table; BackupSectors how many at its end belong to the backup.
const (
	PrimarySectors = 2 + arraySectors
	BackupSectors  = 1 + arraySectors
)

const signature = "EFI PART"

// GUID is a GUID in its on-disk byte order.
type GUID [16]byte

// ParseGUID reads the text form, in either case.
func ParseGUID(text string) (GUID, error) {
	var g GUID
	parts := strings.Split(text, "-")
	if len(text) != 36 || len(parts) != 5 || len(parts[0]) != 8 || len(parts[1]) != 4 || len(parts[2]) != 4 || len(parts[3]) != 4 {
		return g, fmt.Errorf("parse GUID %q: want 8-4-4-4-12 hexadecimal digits", text)
	}

	raw, err := hex.DecodeString(strings.Join(parts, ""))
	if err != nil {
		return g, fmt.Errorf("parse GUID %q: %w", text, err)
	}

	copy(g[:], raw)
	g.swapEndian()
	return g, nil
}

// String gives the text form in lower case.
func (g GUID) String() string {
	g.swapEndian()
	return fmt.Sprintf("%x-%x-%x-%x-%x", g[0:4], g[4:6], g[6:8], g[8:10], g[10:16])
}

// swapEndian exchanges the mixed-endian disk order and the text order.
func (g *GUID) swapEndian() {
	g[0], g[1], g[2], g[3] = g[3], g[2], g[1], g[0]
	g[4], g[5] = g[5], g[4]
	g[6], g[7] = g[7], g[6]
}

// Table is one copy of a partition table.
type Table struct {
	GUID       GUID
	MyLBA      uint64 // sector of this copy's header
	OtherLBA   uint64 // sector of the other copy's header
	EntriesLBA uint64 // first sector of this copy's entries
	FirstLBA   uint64 // first sector that partitions may use
	LastLBA    uint64 // last sector that partitions may use
	Slots      int    // length of the array, used or not
	EntrySize  int    // bytes of an entry
	Partitions []Partition
}

// Partition is one used entry.
type Partition struct {
	Index      int // from 1
	Type       GUID
	GUID       GUID
	First      uint64 // sector
	Last       uint64 // sector, inclusive
	Attributes uint64
	Name       string
}

// Offset is where the partition starts, in bytes from the start of the disk.
func (p Partition) Offset() int64 { return int64(p.First) * SectorSize }

// Size is the partition's size in bytes.
func (p Partition) Size() int64 { return int64(p.Last-p.First+1) * SectorSize }

// check refuses partitions that leave the usable sectors or overlap.
func (t *Table) check() error {
	if t.FirstLBA > t.LastLBA {
		return fmt.Errorf("usable sectors %d to %d", t.FirstLBA, t.LastLBA)
	}
	for i, p := range t.Partitions {
		if p.First > p.Last || p.First < t.FirstLBA || p.Last > t.LastLBA {
			return fmt.Errorf(
				"partition %d: sectors %d to %d are not within the usable %d to %d", p.Index, p.First, p.Last,
				t.FirstLBA, t.LastLBA,
			)
		}
		for _, q := range t.Partitions[:i] {
			if p.First <= q.Last && q.First <= p.Last {
				return fmt.Errorf("partitions %d and %d overlap", q.Index, p.Index)
			}
			if p.GUID == q.GUID {
				return fmt.Errorf("partitions %d and %d have the same GUID %s", q.Index, p.Index, p.GUID)
			}
		}
	}
	return nil
}

// Find returns the partition with this name.
func (t *Table) Find(name string) (Partition, bool) {
	for _, p := range t.Partitions {
		if p.Name == name {
			return p, true
		}
	}
	return Partition{}, false
}

// Resize returns the table for a disk of size bytes: the same partitions, the backup at that
// disk's end, all space usable. Partitions that do not fit are an error.
func (t *Table) Resize(size int64) (*Table, error) {
	sectors := uint64(size / SectorSize)
	if sectors < PrimarySectors+BackupSectors {
		return nil, fmt.Errorf("a disk of %d bytes has no room for a GPT", size)
	}

	fit := *t
	fit.MyLBA, fit.OtherLBA, fit.EntriesLBA = 1, sectors-1, 2
	fit.FirstLBA, fit.LastLBA = PrimarySectors, sectors-1-BackupSectors
	fit.Slots, fit.EntrySize = entryCount, entrySize
	fit.Partitions = append([]Partition(nil), t.Partitions...)
	return &fit, fit.check()
}

// Encode gives the bytes of both copies of a table made by Fit: start belongs at sector 1
// (after the protective MBR), end in the last BackupSectors sectors.
func (t *Table) Encode() (start, end []byte, err error) {
	array := make([]byte, entryCount*entrySize)
	le := binary.LittleEndian
	taken := map[int]bool{}
	for _, p := range t.Partitions {
		if taken[p.Index] {
			return nil, nil, fmt.Errorf("encode partition %d %q: another one has its index", p.Index, p.Name)
		}
		taken[p.Index] = true

		name := utf16.Encode([]rune(p.Name))
		if p.Index < 1 || p.Index > entryCount || len(name) > 36 {
			return nil, nil, fmt.Errorf(
				"encode partition %d %q: the index must be within 1 and %d, the name at most 36 characters", p.Index,
				p.Name, entryCount,
			)
		}

		e := array[(p.Index-1)*entrySize:]
		copy(e[0:16], p.Type[:])
		copy(e[16:32], p.GUID[:])
		le.PutUint64(e[32:], p.First)
		le.PutUint64(e[40:], p.Last)
		le.PutUint64(e[48:], p.Attributes)
		for i, u := range name {
			le.PutUint16(e[56+2*i:], u)
		}
	}

	last := max(t.MyLBA, t.OtherLBA)
	sum := crc32.ChecksumIEEE(array)
	start = append(t.header(1, last, 2, sum), array...)
	end = append(array, t.header(last, 1, last-arraySectors, sum)...)
	return start, end, nil
}

func (t *Table) header(my, other, entries uint64, arrayCRC uint32) []byte {
	h := make([]byte, SectorSize)
	le := binary.LittleEndian
	copy(h, signature)
	le.PutUint32(h[8:], 0x00010000)
	le.PutUint32(h[12:], headerSize)
	le.PutUint64(h[24:], my)
	le.PutUint64(h[32:], other)
	le.PutUint64(h[40:], t.FirstLBA)
	le.PutUint64(h[48:], t.LastLBA)
	copy(h[56:72], t.GUID[:])
	le.PutUint64(h[72:], entries)
	le.PutUint32(h[80:], entryCount)
	le.PutUint32(h[84:], entrySize)
	le.PutUint32(h[88:], arrayCRC)
	le.PutUint32(h[16:], crc32.ChecksumIEEE(h[:headerSize]))
	return h
}

// ProtectiveMBR returns sector 0 for a disk of size bytes: the given boot code (at most
// 440 bytes are used) and one entry that covers the disk, as UEFI 5.2.3 wants it.
func ProtectiveMBR(bootCode []byte, size int64) []byte {
	b := make([]byte, SectorSize)
	copy(b[:440], bootCode)
	copy(b[446:], []byte{0x00, 0x00, 0x02, 0x00, 0xee, 0xff, 0xff, 0xff})
	le := binary.LittleEndian
	le.PutUint32(b[454:], 1)
	le.PutUint32(b[458:], uint32(min(size/SectorSize-1, 0xffffffff)))
	b[510], b[511] = 0x55, 0xaa
	return b
}
