package stick_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"path/filepath"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/stick"
)

const (
	sector   = 512
	diskSize = 1 << 20
)

// made returns a disk of diskSize with both copies of a table: ESP in sectors 100-199,
// ROOT-A in 200-299.
func made() []byte {
	disk := make([]byte, diskSize)
	entries := make([]byte, 128*128)
	le := binary.LittleEndian
	for i, name := range []string{stick.PartitionESP, stick.PartitionRootA} {
		e := entries[i*128:]
		copy(e, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
		e[16] = byte(i + 1)
		le.PutUint64(e[32:], uint64(100+100*i))
		le.PutUint64(e[40:], uint64(199+100*i))
		for j, u := range utf16.Encode([]rune(name)) {
			le.PutUint16(e[56+2*j:], u)
		}
	}
	last := uint64(diskSize/sector - 1)
	put := func(own, array uint64) {
		copy(disk[array*sector:], entries)
		h := disk[own*sector:][:92]
		copy(h, "EFI PART\x00\x00\x01\x00\x5c\x00\x00\x00")
		le.PutUint64(h[24:], own)
		le.PutUint64(h[40:], 34)
		h[56] = 0xaa
		le.PutUint64(h[72:], array)
		le.PutUint32(h[80:], 128)
		le.PutUint32(h[84:], 128)
		le.PutUint32(h[88:], crc32.ChecksumIEEE(entries))
		le.PutUint32(h[16:], crc32.ChecksumIEEE(h))
	}
	put(1, 2)
	put(last, last-32)
	return disk
}

func TestReadTable(t *testing.T) {
	table, err := stick.ReadTable(bytes.NewReader(made()), diskSize, sector)
	require.NoError(t, err)
	assert.False(t, table.Backup)
	assert.Equal(t, "000000aa-0000-0000-0000-000000000000", table.GUID)
	root, ok := table.Entry(stick.PartitionRootA)
	require.True(t, ok)
	assert.Equal(t, stick.Entry{Index: 2, Type: "04030201-0605-0807-090a-0b0c0d0e0f10",
		GUID: "00000002-0000-0000-0000-000000000000", Name: "ROOT-A", Start: 200 * sector, Bytes: 100 * sector}, root)
	assert.EqualValues(t, 300*sector, table.End())
	_, ok = table.Entry(stick.PartitionData)
	assert.False(t, ok)
}

// A power cut while the table is rewritten damages at most one of its copies.
func TestReadTableSurvivesADamagedCopy(t *testing.T) {
	for name, at := range map[string]int{"header": sector + 60, "entries": 2*sector + 60, "signature": sector} {
		t.Run(name, func(t *testing.T) {
			disk := made()
			disk[at] ^= 1
			table, err := stick.ReadTable(bytes.NewReader(disk), diskSize, sector)
			require.NoError(t, err)
			assert.True(t, table.Backup)
			assert.Len(t, table.Entries, 2)
			disk[diskSize-sector+60] ^= 1
			_, err = stick.ReadTable(bytes.NewReader(disk), diskSize, sector)
			assert.ErrorIs(t, err, stick.ErrNoTable)
		})
	}
}

func TestReadTableOfOtherDisks(t *testing.T) {
	_, err := stick.ReadTable(bytes.NewReader(make([]byte, diskSize)), diskSize, sector)
	assert.ErrorIs(t, err, stick.ErrNoTable)
	_, err = stick.ReadTable(bytes.NewReader(nil), diskSize, sector)
	assert.Error(t, err)
	assert.False(t, errors.Is(err, stick.ErrNoTable), "a disk that cannot be read is not one without a table")
}

func FuzzReadTable(f *testing.F) {
	f.Add(made()[:40*sector], int64(sector))
	f.Add([]byte("EFI PART"), int64(4096))
	f.Fuzz(func(t *testing.T, disk []byte, sectorBytes int64) {
		table, err := stick.ReadTable(bytes.NewReader(disk), int64(len(disk)), sectorBytes)
		if err != nil {
			return
		}
		for _, e := range table.Entries {
			assert.Positive(t, e.Bytes)
			assert.GreaterOrEqual(t, e.Start, int64(0))
		}
	})
}

func TestRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "boot.json")
	_, err := stick.Load[stick.BootInfo](path)
	assert.Error(t, err)
	want := stick.BootInfo{Disk: stick.Disk{Path: "/dev/sda", GUID: "x"},
		Partitions: []stick.Partition{{Index: 2, Name: stick.PartitionESP, Path: "/dev/sda2"}}}
	require.NoError(t, stick.Save(path, want))
	got, err := stick.Load[stick.BootInfo](path)
	require.NoError(t, err)
	assert.Equal(t, want, got)
	p, ok := got.Partition(stick.PartitionESP)
	assert.True(t, ok)
	assert.Equal(t, "/dev/sda2", p.Path)
}

func TestImageVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "boot.json")
	assert.Equal(t, assets.Version, stick.ImageVersion(path), "not started from a stick")
	require.NoError(t, stick.Save(path, stick.BootInfo{}))
	assert.Equal(t, assets.Version, stick.ImageVersion(path), "by a boot loader that names none")
	require.NoError(t, stick.Save(path, stick.BootInfo{Version: "9.8-dev+x"}))
	assert.Equal(t, "9.8-dev+x", stick.ImageVersion(path))
}
