package storage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/stick"
)

const mib = 1 << 20

func table(partitions ...stick.Entry) stick.Table {
	t := stick.Table{SectorBytes: 512, FirstUsable: mib}
	for i, p := range partitions {
		p.Index = i + 1
		t.Entries = append(t.Entries, p)
	}
	return t
}

func entry(name string, startMiB, sizeMiB int64) stick.Entry {
	return stick.Entry{Name: name, Start: startMiB * mib, Bytes: sizeMiB * mib}
}

func TestDecide(t *testing.T) {
	rootB := entry(stick.PartitionRootB, 500, 500)
	for name, c := range map[string]struct {
		table stick.Table
		disk  int64
		want  Decision
	}{
		"fresh stick":                   {table(rootB), 8000 * mib, Decision{Make, 6999 * mib}},
		"exactly the image's size":      {table(rootB), 1001 * mib, Decision{NoRoom, 0}},
		"one MiB short":                 {table(rootB), 1256 * mib, Decision{NoRoom, 255 * mib}},
		"just enough":                   {table(rootB), 1257 * mib, Decision{Make, 256 * mib}},
		"odd size":                      {table(rootB), 1258*mib - 512, Decision{Make, 256 * mib}},
		"second boot":                   {table(rootB, entry(stick.PartitionData, 1000, 6999)), 8000 * mib, Decision{Keep, 0}},
		"a little left":                 {table(rootB, entry(stick.PartitionData, 1000, 6950)), 8000 * mib, Decision{Keep, 49 * mib}},
		"copied to a larger stick":      {table(rootB, entry(stick.PartitionData, 1000, 6999)), 16000 * mib, Decision{Grow, 8000 * mib}},
		"something behind DATA":         {table(rootB, entry(stick.PartitionData, 1000, 100), entry("other", 1100, 100)), 8000 * mib, Decision{Keep, 6799 * mib}},
		"partitions beyond a cut image": {table(rootB), 900 * mib, Decision{NoRoom, 0}},
		"unaligned end":                 {table(stick.Entry{Name: "x", Start: mib, Bytes: 512}), 300 * mib, Decision{Make, 297 * mib}},
	} {
		assert.Equal(t, c.want, Decide(c.table, c.disk), name)
	}
}

func superblock(blocks uint64, log uint32) []byte {
	b := make([]byte, 2048)
	le := binary.LittleEndian
	le.PutUint32(b[1024+4:], uint32(blocks))
	le.PutUint32(b[1024+0x18:], log)
	le.PutUint16(b[1024+0x38:], 0xef53)
	le.PutUint32(b[1024+0x60:], 0x80)
	le.PutUint32(b[1024+0x150:], uint32(blocks>>32))
	return b
}

func TestExt4Bytes(t *testing.T) {
	n, err := ext4Bytes(bytes.NewReader(superblock(1<<33, 2)))
	require.NoError(t, err)
	assert.EqualValues(t, 1<<45, n)
	_, err = ext4Bytes(bytes.NewReader(make([]byte, 2048)))
	assert.Error(t, err)
	_, err = ext4Bytes(bytes.NewReader(nil))
	assert.Error(t, err)
}

func FuzzExt4Bytes(f *testing.F) {
	f.Add(superblock(1000, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := ext4Bytes(bytes.NewReader(b)); err == nil {
			assert.GreaterOrEqual(t, n, int64(0))
		}
	})
}

func TestMachineIDIsKeptOnce(t *testing.T) {
	dir := t.TempDir()
	first, second := strings.Repeat("1", 32), strings.Repeat("2", 32)
	require.NoError(t, saveMachineID(dir, first))
	require.NoError(t, saveMachineID(dir, second))
	b, err := os.ReadFile(filepath.Join(dir, stick.MachineIDName))
	require.NoError(t, err)
	assert.Equal(t, first+"\n", string(b))
}

// A disk that took the name of the boot disk, or lost its table, must not be touched.
func TestReadDiskKnowsItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(path, make([]byte, mib), 0o600))
	_, err := readDisk(stick.Disk{Path: path, Bytes: mib, GUID: "a"})
	assert.ErrorIs(t, err, stick.ErrNoTable)
	_, err = readDisk(stick.Disk{Path: path + "x", Bytes: mib})
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// TestAFileSystemWithErrorsLeftIsNotUsed: e2fsck's exit code says more than whether it ran.
func TestAFileSystemWithErrorsLeftIsNotUsed(t *testing.T) {
	for _, c := range []struct {
		preen, force int // exit codes of e2fsck -p and of -f -y; 255: it is not to be called
		usable       bool
	}{
		{0, 255, true},
		{1, 255, true}, // repaired
		{3, 255, true}, // repaired, and to be mounted again
		{4, 0, true},
		{4, 1, true},
		{4, 4, false}, // errors are left
		{8, 8, false},
		{6, 5, false},
	} {
		dir := t.TempDir()
		script := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = -p ] && exit %d\nexit %d\n", c.preen, c.force)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "e2fsck"), []byte(script), 0o755))
		t.Setenv("PATH", dir)
		err := Preparer{Log: slog.New(slog.DiscardHandler)}.check(t.Context(), "/dev/sdx5")
		assert.Equal(t, c.usable, err == nil, "%+v: %v", c, err)
	}
}

func TestRunNamesCommandAndOutput(t *testing.T) {
	assert.NoError(t, run(t.Context(), 3, "sh", "-c", "exit 3"))
	err := run(t.Context(), 3, "sh", "-c", "echo broken superblock; exit 4")
	assert.ErrorContains(t, err, "broken superblock")
	assert.ErrorContains(t, err, "sh -c")
	assert.Error(t, run(t.Context(), 3, "no-such-program"))
}

func TestDocsNameWhatIsKept(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/boot.md")
	require.NoError(t, err)
	for _, b := range stick.StateDirs() {
		assert.Contains(t, string(doc), "`"+b.Path+"`")
	}
	for _, seal := range []stick.Seal{stick.SealTPM, stick.SealKeyFile, stick.SealBeside, stick.SealNone} {
		assert.Contains(t, string(doc), "\n| `"+string(seal)+"` | ")
	}
	for _, a := range []Action{Keep, Make, Grow, NoRoom} {
		assert.Contains(t, string(doc), "*"+string(a)+"*")
	}
}
