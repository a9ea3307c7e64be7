package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/fat"
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
	_, _, err := command(t, "", "flash", image, stick+"-not")
	assert.EqualError(t, err, "find device: "+stick+"-not does not exist; firstlight flash --list names the disks of this machine")
	_, _, err = command(t, "", "flash", image, stick, "--force-device", stick)
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

// TestFlashKeepsData by default, says so, and gives it up only when it is told to.
func TestFlashKeepsData(t *testing.T) {
	const size = 90 << 20
	file := disk.File{Path: "README.txt", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("readme")), nil }}
	guid := func(n int) string { return fmt.Sprintf("6f1f5d0e-94a1-4c54-9c6a-3b1f52a0fb%02d", n) }
	write := func(path string, roots int64, more ...disk.Partition) {
		require.NoError(t, disk.Write(context.Background(), path, disk.Layout{GUID: guid(0), Partitions: append([]disk.Partition{
			{Name: "BIOS", Type: gpt.TypeBIOSBoot, GUID: guid(1), Size: 1 << 20, Content: disk.Bytes("core")},
			{Name: "ESP", Type: gpt.TypeESP, GUID: guid(2), Size: 34 << 20, Content: disk.FAT{Label: "ESP", Files: []disk.File{file}}},
			{Name: "SITE", Type: gpt.TypeBasicData, GUID: guid(3), Size: 34 << 20, Content: disk.FAT{Label: "SITE", Files: []disk.File{file}}},
			{Name: "ROOT-A", Type: gpt.TypeLinuxRoot, GUID: guid(4), Size: roots << 20, Content: disk.Bytes("root")},
		}, more...)}))
	}
	dir := t.TempDir()
	image, large, stick := filepath.Join(dir, "image"), filepath.Join(dir, "large"), filepath.Join(dir, "stick")
	write(image, 2)
	write(large, 8)
	write(stick, 3, disk.Partition{Name: "DATA", Type: gpt.TypeLinux, GUID: guid(6), Size: 4 << 20, Content: disk.Bytes("records")})
	require.NoError(t, os.Truncate(stick, size))
	f, err := os.Open(stick)
	require.NoError(t, err)
	defer f.Close()
	data := func() string {
		table, err := gpt.ReadPrimary(f)
		require.NoError(t, err)
		p, ok := table.Find("DATA")
		if !ok {
			return ""
		}
		b := make([]byte, 7)
		_, err = f.ReadAt(b, p.Offset())
		require.NoError(t, err)
		return string(b)
	}

	_, _, err = command(t, "", "flash", large, stick, "--force-device", stick)
	assert.ErrorContains(t, err, "ROOT-A of the image needs ")
	assert.ErrorContains(t, err, "--forget")
	assert.Equal(t, "records", data(), "a refusal writes nothing")

	out, _, err := command(t, "", "flash", image, stick, "--force-device", stick)
	require.NoError(t, err)
	assert.Contains(t, out, "DATA stays as it is\nSITE stays as it is\n")
	assert.Equal(t, "records", data())

	out, _, err = command(t, "", "flash", image, stick, "--force-device", stick, "--forget")
	require.NoError(t, err)
	assert.NotContains(t, out, "stays as it is")
	assert.Empty(t, data())
}

// TestFlashPutsASiteOntoTheStick once it is known to be right.
func TestFlashPutsASiteOntoTheStick(t *testing.T) {
	dir := t.TempDir()
	image, stick, document := filepath.Join(dir, "image"), filepath.Join(dir, "stick"), filepath.Join(dir, "site.yaml")
	require.NoError(t, disk.Write(context.Background(), image, disk.Layout{
		GUID: "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0fd00",
		Partitions: []disk.Partition{{
			Name:    "SITE",
			Type:    gpt.TypeBasicData,
			GUID:    "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0fd01",
			Size:    34 << 20,
			Content: disk.FAT{Label: "SITE"},
		}},
	}))
	emptyFile(t, stick, 40<<20)
	require.NoError(t, os.WriteFile(document, []byte("nam: x\n"), 0o600))
	_, _, err := command(t, "", "flash", image, stick, "--force-device", stick, "--site", document)
	require.ErrorContains(t, err, "nothing is written:\n"+document+":1: nam: unknown key; did you mean name?")
	f, err := os.Open(stick)
	require.NoError(t, err)
	defer f.Close()
	_, err = gpt.ReadPrimary(f)
	require.ErrorIs(t, err, gpt.ErrNoTable, "a refusal writes nothing")

	require.NoError(t, os.WriteFile(document, []byte("name: lab-1\n"), 0o600))
	_, _, err = command(t, "", "flash", image, stick, "--force-device", stick, "--site", document)
	require.NoError(t, err)
	table, err := gpt.ReadPrimary(f)
	require.NoError(t, err)
	part, ok := table.Find("SITE")
	require.True(t, ok)
	volume, err := fat.Open(io.NewSectionReader(f, part.Offset(), part.Size()))
	require.NoError(t, err)
	text, err := volume.ReadFile("site.yaml")
	require.NoError(t, err)
	assert.Equal(t, "name: lab-1\n", string(text))
}

// TestFlashAsksOnATerminal, and takes no other answer than yes for one.
func TestFlashAsksOnATerminal(t *testing.T) {
	image, stick := tinyImage(t), filepath.Join(t.TempDir(), "stick")
	emptyFile(t, stick, 5<<20)
	for answer, written := range map[string]bool{"": false, "\n": false, "n\n": false, "ja\n": false, "y\n": true, "YES\n": true} {
		t.Run(fmt.Sprintf("%q", answer), func(t *testing.T) {
			var said strings.Builder
			f := flasher{
				in:          strings.NewReader(answer),
				out:         &said,
				progressOut: &said,
				sysfs:       flash.HostSysFS(),
				forced:      stick,
				forget:      true,
				ask:         true,
			}
			err := f.run(t.Context(), image, stick)
			assert.Contains(t, said.String(), "All that is on it will be lost.\nWrite to "+stick+"? [y/N] ")
			if written {
				assert.NoError(t, err)
			} else {
				assert.ErrorIs(t, err, errNotConfirmed)
			}
		})
	}
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
