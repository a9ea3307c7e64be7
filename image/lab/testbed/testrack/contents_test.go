package testrack

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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

	program := filepath.FromSlash("../../../../overlays/ramdisk/usr/lib/python3/dist-packages/firstlight.py")
	var files []string
	for _, name := range []string{"blank", "file-system", "table", "old-table", "table-at-the-end-only", "odd", "absent"} {
		files = append(files, filepath.Join(dir, name))
	}
	out, err := exec.Command("python3", append([]string{program}, files...)...).Output()
	require.NoError(t, err)
	var got map[string][]string
	require.NoError(t, json.Unmarshal(out, &got))
	assert.Empty(t, got[files[0]])
	assert.Equal(t, []string{"ext4"}, got[files[1]])
	assert.Equal(t, []string{"gpt"}, got[files[2]])
	assert.Equal(t, []string{"dos"}, got[files[3]])
	assert.Equal(t, []string{"gpt"}, got[files[4]])
	assert.Equal(t, []string{"data of an unknown kind"}, got[files[5]])
	require.Len(t, got[files[6]], 1)
	assert.Contains(t, got[files[6]][0], "unreadable: ")
}
