package initramfs

import (
	"bytes"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/u-root/u-root/pkg/cpio"
	"github.com/ulikunitz/xz"

	"firstlight.dev/firstlight/image/drivers/moduletest"
)

func packed(t *testing.T, content string) []byte {
	var b bytes.Buffer
	w, err := xz.NewWriter(&b)
	require.NoError(t, err)
	_, err = io.WriteString(w, content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// kernel is a module directory of the usual form with few modules.
func kernel(t *testing.T) fstest.MapFS {
	file := func(b []byte) *fstest.MapFile { return &fstest.MapFile{Data: b} }
	return fstest.MapFS{
		"modules.dep": file([]byte(`kernel/fs/ext4/ext4.ko.xz: kernel/lib/crc16.ko.xz kernel/fs/jbd2/jbd2.ko.xz
kernel/lib/crc16.ko.xz:
kernel/fs/jbd2/jbd2.ko.xz:
kernel/drivers/scsi/sd_mod.ko: kernel/drivers/scsi/scsi_mod.ko.xz
kernel/drivers/scsi/scsi_mod.ko.xz:
kernel/drivers/gpu/drm/drm.ko.xz:
`)),
		"modules.alias":                      file([]byte("# comment\nalias fs-ext4 ext4\nalias scsi:t-0x00* sd_mod\nalias pci:v* drm\n")),
		"modules.softdep":                    file([]byte("softdep ext4 pre: crypto-crc32c\nsoftdep drm pre: x\n")),
		"modules.builtin":                    file([]byte("kernel/fs/nls/nls_base.ko\n")),
		"kernel/fs/ext4/ext4.ko.xz":          file(packed(t, "ext4")),
		"kernel/lib/crc16.ko.xz":             file(packed(t, "crc16")),
		"kernel/fs/jbd2/jbd2.ko.xz":          file(packed(t, "jbd2")),
		"kernel/drivers/scsi/sd_mod.ko":      file([]byte("sd")),
		"kernel/drivers/scsi/scsi_mod.ko.xz": file(packed(t, "scsi")),
		"kernel/drivers/gpu/drm/drm.ko.xz":   file(packed(t, "drm")),
	}
}

func build(t *testing.T) []byte {
	var b bytes.Buffer
	sum, err := Build(&b, Source{Init: []byte("#!init"), Release: "6.12.1", Modules: kernel(t)})
	require.NoError(t, err)
	assert.Equal(t, Summary{Modules: 5, Plain: int64(len("ext4crc16jbd2sdscsi"))}, sum)
	return b.Bytes()
}

func TestBuild(t *testing.T) {
	archive := build(t)
	assert.Equal(t, archive, build(t), "the same input gives the same bytes")

	z, err := zstd.NewReader(bytes.NewReader(archive))
	require.NoError(t, err)
	plain, err := io.ReadAll(z)
	require.NoError(t, err)
	files := map[string]string{}
	var order []string
	require.NoError(t, cpio.ForEachRecord(cpio.Newc.Reader(bytes.NewReader(plain)), func(r cpio.Record) error {
		content, err := io.ReadAll(io.NewSectionReader(r.ReaderAt, 0, int64(r.FileSize)))
		files[r.Name] = string(content)
		order = append(order, r.Name)
		assert.Zero(t, r.MTime, r.Name)
		return err
	}))
	assert.True(t, slices.IsSorted(order), "a directory comes before what is in it")
	const dir = "lib/modules/6.12.1/"
	assert.Equal(t, "#!init", files["init"])
	assert.Equal(t, "ext4", files[dir+"kernel/fs/ext4/ext4.ko"], "stored plain")
	assert.Equal(t, "sd", files[dir+"kernel/drivers/scsi/sd_mod.ko"])
	assert.NotContains(t, strings.Join(slices.Collect(maps.Keys(files)), " "), "drm")
	assert.Equal(t, `kernel/drivers/scsi/scsi_mod.ko:
kernel/drivers/scsi/sd_mod.ko: kernel/drivers/scsi/scsi_mod.ko
kernel/fs/ext4/ext4.ko: kernel/lib/crc16.ko kernel/fs/jbd2/jbd2.ko
kernel/fs/jbd2/jbd2.ko:
kernel/lib/crc16.ko:
`, files[dir+"modules.dep"])
	assert.Equal(t, "alias fs-ext4 ext4\nalias scsi:t-0x00* sd_mod\n", files[dir+"modules.alias"])
	assert.Equal(t, "softdep ext4 pre: crypto-crc32c\n", files[dir+"modules.softdep"])
	for _, name := range []string{"dev/console", "proc", "sys", "run", "sysroot"} {
		assert.Contains(t, files, name)
	}
}

// What a driver of the boot disk loads is there with it, and microcode is where the kernel looks for it.
func TestFirmwareAndMicrocodeAreInFrontOfTheRoot(t *testing.T) {
	k := kernel(t)
	k["kernel/drivers/scsi/sd_mod.ko"] = &fstest.MapFile{Data: moduletest.Module("firmware=isci.bin", "firmware=none.bin")}
	for _, other := range []string{"fs/ext4/ext4", "lib/crc16", "fs/jbd2/jbd2", "drivers/scsi/scsi_mod"} {
		k["kernel/"+other+".ko.xz"] = &fstest.MapFile{Data: packed(t, string(moduletest.Module("license=GPL")))}
	}
	microcode := strings.Repeat("code", 128)
	var b bytes.Buffer
	_, err := Build(&b, Source{
		Init:      []byte("#!init"),
		Release:   "6.12.1",
		Modules:   k,
		Microcode: []byte(microcode),
		Firmware: func(name string) (map[string][]byte, error) {
			if name == "isci.bin" {
				return map[string][]byte{"isci.bin.xz": []byte("firmware")}, nil
			}
			return nil, nil
		},
	})
	require.NoError(t, err)
	rest, ok := bytes.CutPrefix(b.Bytes(), []byte(microcode))
	require.True(t, ok)
	z, err := zstd.NewReader(bytes.NewReader(rest))
	require.NoError(t, err)
	defer z.Close()
	plain, err := io.ReadAll(z)
	require.NoError(t, err)
	assert.Equal(t, "firmware", records(t, plain)["lib/firmware/isci.bin.xz"])
}

func TestBuildRefusesWhatIsNoKernel(t *testing.T) {
	for name, change := range map[string]func(fstest.MapFS){
		"no modules.dep":   func(k fstest.MapFS) { delete(k, "modules.dep") },
		"no alias table":   func(k fstest.MapFS) { delete(k, "modules.alias") },
		"missing module":   func(k fstest.MapFS) { delete(k, "kernel/fs/jbd2/jbd2.ko.xz") },
		"damaged module":   func(k fstest.MapFS) { k["kernel/fs/jbd2/jbd2.ko.xz"].Data[8] ^= 1 },
		"nothing to drive": func(k fstest.MapFS) { k["modules.dep"].Data = []byte("kernel/drivers/gpu/drm/drm.ko.xz:\n") },
	} {
		k := kernel(t)
		change(k)
		_, err := Build(io.Discard, Source{Release: "6.12.1", Modules: k})
		assert.Error(t, err, name)
	}
}
