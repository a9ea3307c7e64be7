package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/flash"
	"firstlight.dev/firstlight/image/verify"
)

func tinyImage(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tiny.img")
	require.NoError(t, disk.Write(context.Background(), path, disk.Layout{
		GUID: "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0fc00",
		Partitions: []disk.Partition{{
			Name: "BIOS", Type: gpt.TypeBIOSBoot, GUID: "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0fc01", Size: 1 << 20, Content: disk.Bytes("core"),
		}},
	}))
	return path
}

func emptyFile(t *testing.T, path string, size int64) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, size))
}

func TestFlashToFile(t *testing.T) {
	image, stick := tinyImage(t), filepath.Join(t.TempDir(), "stick")
	emptyFile(t, stick, 2<<20)
	_, _, err := command(t, "", "flash", image, stick, "--force-device", stick)
	assert.EqualError(t, err, "refused: "+stick+" has 2097152 bytes, the image needs 3145728")

	require.NoError(t, os.Truncate(stick, 5<<20))
	_, _, err = command(t, "", "flash", image, stick)
	assert.EqualError(t, err, "refused: "+stick+" is a regular file, not a disk; if it is meant, add --force-device "+stick)
	f, err := os.Open(stick)
	require.NoError(t, err)
	defer f.Close()
	_, err = gpt.ReadPrimary(f)
	require.ErrorIs(t, err, gpt.ErrNoTable, "a refusal writes nothing")

	out, _, err := command(t, "", "flash", image, stick, "--force-device", stick)
	require.NoError(t, err)
	assert.Contains(t, out, stick+": 5.0 MiB, regular file\n")
	assert.Contains(t, out, "write 100 % of ")
	assert.Contains(t, out, "verify 100 % of ")
	assert.Contains(t, out, stick+" is written and read back; it may be pulled\n")
	_, err = gpt.ReadBackup(f, 5<<20)
	assert.NoError(t, err)
}

func TestFlashUsage(t *testing.T) {
	for _, args := range [][]string{{"flash"}, {"flash", "--list", "x"}, {"flash", "a", "b", "-o", "xml"}, {"verify"}, {"verify", "x", "-o", "xml"}} {
		_, _, err := command(t, "", args...)
		var usage commandline.UsageError
		assert.True(t, errors.As(err, &usage), "%v: %v", args, err)
	}
}

func TestFlashListIsJSON(t *testing.T) {
	if _, err := os.Stat("/sys/class/block"); err != nil {
		t.Skipf("this machine shows no block devices: %v", err)
	}
	out, _, err := command(t, "", "flash", "--list", "-o", "json")
	require.NoError(t, err)
	var devices []flash.Device
	require.NoError(t, json.Unmarshal([]byte(out), &devices))
	for _, d := range devices {
		assert.NotEmpty(t, d.Name)
		assert.Positive(t, d.Bytes)
	}
}

func TestVerifyNamesFindings(t *testing.T) {
	image := tinyImage(t)
	out, _, err := command(t, "", "verify", image)
	require.Error(t, err)
	assert.Regexp(t, `tiny.img: \d+ findings$`, err.Error())
	assert.Contains(t, out, "table: ROOT-A: there is no partition 4\n")

	out, _, err = command(t, "", "verify", image, "-o", "json")
	require.Error(t, err)
	var report verify.Report
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	assert.Equal(t, image, report.Image)
	assert.NotEmpty(t, report.Findings)
}
