package stick

import (
	"fmt"
	"io"

	"firstlight.dev/firstlight/assets/gpt"
)

// Table is what a boot needs to know of a disk's partition table.
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
var ErrNoTable = gpt.ErrNoTable

// ReadTable reads the table of a disk of diskBytes bytes with sectors of sectorBytes. If
// the first copy is damaged the second is tried, at the end of the disk: a power cut may
// come while the first is rewritten.
func ReadTable(r io.ReaderAt, diskBytes, sectorBytes int64) (Table, error) {
	if sectorBytes <= 0 {
		return Table{}, fmt.Errorf("read partition table: sectors of %d bytes: %w", sectorBytes, ErrNoTable)
	}

	t, err := gpt.Read(r, 1, sectorBytes)
	if err == nil {
		return tableOf(t, sectorBytes), nil
	}
	if t, backupErr := gpt.Read(r, uint64(max(diskBytes/sectorBytes-1, 0)), sectorBytes); backupErr == nil {
		backup := tableOf(t, sectorBytes)
		backup.Backup = true
		return backup, nil
	}

	return Table{}, err
}

func tableOf(t *gpt.Table, sector int64) Table {
	table := Table{GUID: t.GUID.String(), SectorBytes: sector, FirstUsable: int64(t.FirstLBA) * sector}
	for _, p := range t.Partitions {
		table.Entries = append(table.Entries, Entry{
			Index: p.Index,
			Type:  p.Type.String(),
			GUID:  p.GUID.String(),
			Name:  p.Name,
			Start: int64(p.First) * sector,
			Bytes: int64(p.Last-p.First+1) * sector,
		})
	}
	return table
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
