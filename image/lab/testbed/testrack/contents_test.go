package testrack

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/inspection"
)

// collector is the deploy ramdisk's.
const collector = "../../../../overlays/ramdisk/usr/lib/python3/dist-packages/firstlight.py"

// The deploy ramdisk's collector, run as a program on files instead of disks.
func TestCollectorTellsWhatADiskHolds(t *testing.T) {
	for _, name := range []string{"python3", "wipefs", "mkfs.ext4", "sfdisk"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("needs the tools that the ramdisk has: ", err)
		}
	}
	dir := t.TempDir()
	disk := func(name string, prepare ...string) {
		t.Helper()
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, nil, 0o644))
		require.NoError(t, os.Truncate(path, 16<<20))
		if len(prepare) > 0 {
			out, err := exec.Command("sh", "-c", prepare[0], "sh", path).CombinedOutput()
			require.NoError(t, err, "%s", out)
		}
	}
	disk("blank")
	disk("file-system", `mkfs.ext4 -q "$1"`)
	disk("table", `printf 'label: gpt\nsize=1MiB\n' | sfdisk -q "$1"`)
	disk("old-table", `printf 'label: dos\nsize=1MiB\n' | sfdisk -q "$1"`)
	disk("table-at-the-end-only", `printf 'label: gpt\nsize=1MiB\n' | sfdisk -q "$1" && dd if=/dev/zero of="$1" bs=1M count=1 conv=notrunc status=none`)
	disk("odd", `echo x | dd of="$1" bs=1 seek=5000 conv=notrunc status=none`)

	program := filepath.FromSlash(collector)
	var files []string
	for _, name := range []string{"blank", "file-system", "table", "old-table", "table-at-the-end-only", "odd", "absent"} {
		files = append(files, filepath.Join(dir, name))
	}
	out, err := exec.Command("python3", append([]string{program}, files...)...).Output()
	require.NoError(t, err)
	got, err := inspection.Read(map[string]json.RawMessage{inspection.Key: out})
	require.NoError(t, err)
	assert.Equal(t, inspection.Disk{Kinds: []string{}}, got[files[0]])
	assert.Equal(t, []string{"ext4"}, got[files[1]].Kinds)
	assert.Equal(t, []string{"gpt"}, got[files[2]].Kinds)
	assert.Equal(t, []string{"dos"}, got[files[3]].Kinds)
	assert.Equal(t, []string{"gpt"}, got[files[4]].Kinds)
	assert.Equal(t, []string{"data of an unknown kind"}, got[files[5]].Kinds)
	assert.NotEmpty(t, got[files[6]].Unreadable)
	assert.Empty(t, got[files[6]].Fingerprint, "nobody consents to what was not seen")
	for _, file := range files[1:6] {
		assert.Regexp(t, `^data-[0-9a-f]{12}$`, got[file].Fingerprint)
		assert.Nil(t, got[file].Mark)
	}
	assert.NotEqual(t, got[files[1]].Fingerprint, got[files[5]].Fingerprint)
}

// configDrive is the beginning of a volume as Ironic has it made (ECMA-119): descriptor, then files in one piece each.
func configDrive(files ...string) []byte {
	drive := make([]byte, 1<<20)
	copy(drive[16<<11:], "\x01CD001\x01\x00")
	copy(drive[16<<11+40:], "config-2                        ")
	copy(drive[16<<11+813:], "2026112611223300\x00")
	copy(drive[17<<11:], "\xffCD001\x01")
	for i, file := range files {
		copy(drive[(20+i*4)<<11:], file)
	}
	return drive
}

// TestCollectorTellsWhoInstalledADisk: by the metadata in its config drive, also of appliances that did not write
// the name of their site yet, and of nobody else's installations.
func TestCollectorTellsWhoInstalledADisk(t *testing.T) {
	for _, name := range []string{"python3", "wipefs"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("needs the tools that the ramdisk has: ", err)
		}
	}
	const (
		meta  = `{"uuid": "0b1c", "metal3-namespace": "metal3", "metal3-name": "node-1", "keys": {"a": {}}`
		trust = "#cloud-config\nwrite_files: [{path: /usr/local/share/ca-certificates/firstlight.crt}]\n"
	)
	for name, c := range map[string]struct {
		drive []byte
		want  *inspection.Mark
	}{
		"this site":          {configDrive("#cloud-config {}", meta+`, "firstlight-site": "edge-7"}`), &inspection.Mark{Site: "edge-7", Node: "node-1", ID: "0b1c", Time: "2026-11-26 11:22"}},
		"an earlier version": {configDrive(trust, meta+`}`), &inspection.Mark{Node: "node-1", ID: "0b1c", Time: "2026-11-26 11:22"}},
		"somebody's Metal3":  {configDrive("#cloud-config", meta+`}`), nil},
		"somebody's Nova":    {configDrive(trust, `{"uuid": "1"}`), nil},
		"torn metadata":      {configDrive("#cloud-config", meta), nil},
		"no config drive":    {make([]byte, 1<<20), nil},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "disk")
			require.NoError(t, os.WriteFile(file, c.drive, 0o644))
			out, err := exec.Command("python3", filepath.FromSlash(collector), file).Output()
			require.NoError(t, err)
			got, err := inspection.Read(map[string]json.RawMessage{inspection.Key: out})
			require.NoError(t, err)
			assert.Equal(t, c.want, got[file].Mark)
		})
	}
}
