package initramfs

import (
	"bytes"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/u-root/u-root/pkg/cpio"

	"firstlight.dev/firstlight/image/firmware"
	"firstlight.dev/firstlight/image/tree"
)

func records(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, cpio.ForEachRecord(cpio.Newc.Reader(bytes.NewReader(archive)), func(r cpio.Record) error {
		text, err := io.ReadAll(io.NewSectionReader(r, 0, int64(r.FileSize)))
		found[r.Name] = string(text)
		return err
	}))
	return found
}

// What is compressed already lies in the ramdisk as it is: only so can it be shared.
func TestDriversLieInARamdiskAsTheyAre(t *testing.T) {
	r := tree.New(1)
	const driver = "/usr/lib/modules/6/kernel/a.ko.xz"
	const loaded = firmware.Dir + "/ice.pkg.xz"
	microcode := strings.Repeat("microcode: not an archive, so that it is seen where it lies, as it is. ", 1024)
	for p, text := range map[string]string{
		driver:                           "packed",
		loaded:                           "packed too",
		firmware.MicrocodePath:           microcode,
		firmware.Dir + "/README":         "plain",
		"/usr/lib/modules/6/modules.dep": "a",
		"/init":                          "#!",
	} {
		require.NoError(t, r.File(p, 0o755, tree.Bytes(text), "test"))
	}
	require.NoError(t, r.Link("/lib", "usr/lib", "test"))
	dir := t.TempDir()
	var archives [2][]byte
	for i := range archives {
		file := filepath.Join(dir, strconv.Itoa(i))
		require.NoError(t, WriteTree(r, file))
		var err error
		archives[i], err = os.ReadFile(file)
		require.NoError(t, err)
	}
	archive := archives[0]
	assert.Equal(t, archive, archives[1])

	assert.True(t, bytes.HasPrefix(archive, []byte(microcode)), "the kernel looks for it at the beginning")
	archive = archive[len(microcode):]
	first := records(t, archive)
	assert.Equal(t, "packed", first[driver[1:]])
	assert.Equal(t, "packed too", first[loaded[1:]])
	assert.Equal(t, []string{
		".", "usr", "usr/lib", "usr/lib/firmware", loaded[1:],
		"usr/lib/modules", "usr/lib/modules/6", "usr/lib/modules/6/kernel", driver[1:],
	}, slices.Sorted(maps.Keys(first)), "with the directories above, in their order, and nothing else")

	at := bytes.Index(archive, []byte{0x28, 0xb5, 0x2f, 0xfd})
	require.Positive(t, at)
	assert.Zero(t, at%padding)
	z, err := zstd.NewReader(bytes.NewReader(archive[at:]))
	require.NoError(t, err)
	defer z.Close()
	rest, err := io.ReadAll(z)
	require.NoError(t, err)
	second := records(t, rest)
	assert.NotContains(t, second, driver[1:])
	assert.Equal(t, "#!", second["init"])
	assert.Equal(t, "usr/lib", second["lib"])
	assert.Contains(t, second, "usr/lib/modules/6/kernel")
	assert.NotContains(t, second, firmware.MicrocodePath[1:])
	assert.Contains(t, second, "usr/lib/firmware/README")
}
