package storage

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/stick"
)

const diskBytes = 1024 * mib

// flashed is a disk with an image on it: the table's copy is at the image's end, not at the disk's.
func flashed(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	require.NoError(t, f.Truncate(diskBytes))

	kind, err := gpt.ParseGUID(gpt.TypeLinux)
	require.NoError(t, err)
	table := &gpt.Table{Partitions: []gpt.Partition{{
		Index: 5, Type: kind, GUID: gpt.GUID{1}, First: 2048, Last: 100*2048 - 1, Name: stick.PartitionRootA,
	}}}
	table, err = table.Resize(101 * mib)
	require.NoError(t, err)
	start, end, err := table.Encode()
	require.NoError(t, err)
	_, err = f.WriteAt(start, gpt.SectorSize)
	require.NoError(t, err)
	_, err = f.WriteAt(end, 101*mib-int64(len(end)))
	require.NoError(t, err)
	return f
}

func readTable(t *testing.T, f *os.File) stick.Table {
	t.Helper()
	table, err := stick.ReadTable(f, diskBytes, gpt.SectorSize)
	require.NoError(t, err)
	return table
}

func TestDataGetsItsPlaceInTheTable(t *testing.T) {
	k := Preparer{Log: slog.New(slog.DiscardHandler)}
	f := flashed(t)
	before := readTable(t, f)
	require.Equal(t, Decision{Make, 923 * mib}, Decide(before, diskBytes))
	room := dataRoom(before, diskBytes)
	assert.Equal(t, Room{100 * mib, 923 * mib}, room)

	require.NoError(t, k.addToTable(f, diskBytes, Room{room.Start, 500 * mib}))
	data, ok := readTable(t, f).Entry(stick.PartitionData)
	require.True(t, ok)
	guid := data.GUID
	assert.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-`, guid)
	assert.Equal(t, stick.Entry{Index: stick.NumberData, Type: gpt.TypeLinux, GUID: guid, Name: stick.PartitionData,
		Start: 100 * mib, Bytes: 500 * mib}, data)

	after := readTable(t, f)
	require.Equal(t, Grow, Decide(after, diskBytes).Action)
	require.NoError(t, k.addToTable(f, diskBytes, dataRoom(after, diskBytes)))
	data, _ = readTable(t, f).Entry(stick.PartitionData)
	assert.Equal(t, guid, data.GUID, "the same partition")
	assert.EqualValues(t, 923*mib, data.Bytes)
	assert.Equal(t, Decision{Keep, 0}, Decide(readTable(t, f), diskBytes))
	_, err := gpt.ReadBackup(f, diskBytes)
	assert.NoError(t, err)
}

// TestAPartitionWithTheNumberOfDataStays: whoever made one on the stick keeps it.
func TestAPartitionWithTheNumberOfDataStays(t *testing.T) {
	f := flashed(t)
	require.NoError(t, writeTable(f, diskBytes, func(table *gpt.Table) error {
		table.Partitions = append(table.Partitions, gpt.Partition{
			Index: stick.NumberData, Type: gpt.GUID{2}, GUID: gpt.GUID{2}, First: 100 * 2048, Last: 200*2048 - 1, Name: "photos",
		})
		return nil
	}))
	before := readTable(t, f)
	require.Equal(t, Make, Decide(before, diskBytes).Action)
	require.EqualError(t, checkNumber(before), `make DATA: its number 6 is that of partition "photos", which stays as it is; `+
		"save what is on it, delete it, then restart")
	k := Preparer{Log: slog.New(slog.DiscardHandler)}
	require.Error(t, k.addToTable(f, diskBytes, dataRoom(before, diskBytes)))
	assert.Equal(t, before, readTable(t, f))
	assert.NoError(t, checkNumber(readTable(t, flashed(t))))
}

// TestATornTableIsTheOldOrTheNewOne: whichever sector of the two copies was the last that was written.
func TestATornTableIsTheOldOrTheNewOne(t *testing.T) {
	f := flashed(t)
	sectors := func() []byte { // in the order in which they are written
		end := make([]byte, gpt.BackupSectors*gpt.SectorSize)
		start := make([]byte, (gpt.PrimarySectors-1)*gpt.SectorSize)
		_, err := f.ReadAt(end, diskBytes-int64(len(end)))
		require.NoError(t, err)
		_, err = f.ReadAt(start, gpt.SectorSize)
		require.NoError(t, err)
		return append(end, start...)
	}
	before := sectors()
	k := Preparer{Log: slog.New(slog.DiscardHandler)}
	require.NoError(t, k.addToTable(f, diskBytes, Room{100 * mib, 923 * mib}))
	after := sectors()

	seen := map[bool]int{}
	for at := 0; at <= len(after); at += gpt.SectorSize {
		torn := append(bytes.Clone(after[:at]), before[at:]...)
		_, err := f.WriteAt(torn[:gpt.BackupSectors*gpt.SectorSize], diskBytes-gpt.BackupSectors*gpt.SectorSize)
		require.NoError(t, err)
		_, err = f.WriteAt(torn[gpt.BackupSectors*gpt.SectorSize:], gpt.SectorSize)
		require.NoError(t, err)

		_, made := readTable(t, f).Entry(stick.PartitionData)
		seen[made]++
		if _, err := gpt.ReadPrimary(f); err != nil {
			require.NoError(t, k.repairTable(f, diskBytes))
			_, err = gpt.ReadPrimary(f)
			assert.NoError(t, err, "the next boot repairs it")
		}
	}
	assert.Greater(t, seen[false], gpt.BackupSectors)
	assert.Positive(t, seen[true])
}
