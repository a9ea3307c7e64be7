// Package disktest changes images of the stick for tests.
package disktest

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/disk"
)

// CopyImage copies an image and keeps its holes: it is mostly empty.
func CopyImage(t testing.TB, path string) (to string) {
	t.Helper()
	to = filepath.Join(t.TempDir(), "stick.img")
	out, err := exec.Command("cp", "--sparse=always", "--reflink=auto", path, to).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return to
}

// PutFiles puts files into a FAT partition of the image at path, or replaces them.
func PutFiles(t testing.TB, path, partition string, files ...disk.File) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	out, err := os.Create(filepath.Join(t.TempDir(), partition))
	require.NoError(t, err)
	defer out.Close()

	at, err := disk.CopyFAT(t.Context(), f, partition, out, files...)
	require.NoError(t, err)
	_, err = out.Seek(0, io.SeekStart)
	require.NoError(t, err)
	_, err = io.Copy(io.NewOffsetWriter(f, at), out)
	require.NoError(t, err)
}

// ChangeConfig changes what slot a of the image at path starts.
func ChangeConfig(t testing.TB, path string, change func(*stick.SlotConfig)) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	table, err := gpt.ReadPrimary(f)
	require.NoError(t, err)
	p, ok := table.Find(stick.PartitionBootA)
	require.True(t, ok)
	volume, err := fat.Open(io.NewSectionReader(f, p.Offset(), p.Size()))
	require.NoError(t, err)
	text, err := volume.ReadFile(stick.SlotConfigName)
	require.NoError(t, err)
	config, err := stick.ParseSlotConfig(text)
	require.NoError(t, err)

	change(&config)
	PutFiles(t, path, stick.PartitionBootA, disk.TextFile(stick.SlotConfigName, config.Encode()))
}
