package firmware

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/u-root/u-root/pkg/cpio"
	"github.com/ulikunitz/xz"

	"firstlight.dev/firstlight/image/drivers/moduletest"
	"firstlight.dev/firstlight/image/tree"
)

func modules() fstest.MapFS {
	module := func(fields ...string) *fstest.MapFile { return &fstest.MapFile{Data: moduletest.Module(fields...)} }
	return fstest.MapFS{
		"kernel/drivers/net/ethernet/ice.ko":   module("firmware=intel/ice.pkg", "depends=gnss"),
		"kernel/drivers/scsi/qla2xxx.ko":       module("firmware=ql2400_fw.bin", "firmware=ql2500_fw.bin"),
		"kernel/drivers/net/ethernet/cxgb4.ko": module("firmware=cxgb4/t6fw.bin"),
		"kernel/drivers/net/ethernet/quiet.ko": module("license=GPL"),
		"kernel/drivers/scsi/wd719x.ko":        module("firmware=wd719x-risc.bin"),
		"kernel/sound/loud.ko":                 module("firmware=loud.bin"),
	}
}

// intel is an update of microcode as Intel publishes it, of 64 bytes.
func intel(text string) string {
	b := make([]byte, 64)
	binary.LittleEndian.PutUint32(b[28:], 16)
	binary.LittleEndian.PutUint32(b[32:], 64)
	copy(b[48:], text)
	return string(b)
}

func packages(t *testing.T) *tree.Tree {
	p := tree.New(1)
	for name, text := range map[string]string{
		"/intel/ice-1.2.pkg": "ice", "/ql2400_fw.bin": "2400", "/ql2500_fw.bin": "2500", "/cxgb4/t6fw-1.bin": "t6",
		"/cxgb4/configs/t4.txt": "4", "/cxgb4/configs/t5.txt": "5", "/cxgb4/configs/t6.txt": "6", "/wifi.bin": "no",
		"/amd-ucode/microcode_amd.bin": "AMD!", "/intel-ucode/06-01-01": intel("first"),
		"/intel-ucode/06-01-02": intel("first") + intel("second"), "/intel-ucode/06-02-01": intel("second"),
	} {
		require.NoError(t, p.File(Dir+name, 0o644, tree.Bytes(text), "test"))
	}
	for name, target := range map[string]string{
		"/intel/ice.pkg": "ice-1.2.pkg", "/cxgb4/t6fw.bin": "t6fw-1.bin", "/cxgb4/t4-config.txt": "configs/t4.txt",
		"/cxgb4/t5-config.txt": "configs/t5.txt", "/cxgb4/t6-config.txt": "configs/t6.txt",
	} {
		require.NoError(t, p.Link(Dir+name, target, "test"))
	}
	for _, name := range []string{"a", "b"} {
		require.NoError(t, p.File("/usr/share/doc/firmware-"+name+"/copyright", 0o644, tree.Bytes("may be copied"), "test"))
	}
	return p
}

func TestDriversOfServersNameTheirFirmware(t *testing.T) {
	all, err := ReadDrivers(modules())
	require.NoError(t, err)
	var lines []string
	for _, d := range all {
		lines = append(lines, d.Module()+" "+strings.Join(d.Names, " "))
	}
	assert.Equal(t, []string{
		"cxgb4 cxgb4/t4-config.txt cxgb4/t5-config.txt cxgb4/t6-config.txt cxgb4/t6fw.bin",
		"ice intel/ice.pkg", "qla2xxx ql2400_fw.bin ql2500_fw.bin", "wd719x wd719x-risc.bin",
	}, lines)

	_, err = ReadDrivers(fstest.MapFS{})
	assert.Error(t, err)
}

func TestOnlyWhatDriversNameIsTakenAndCompressed(t *testing.T) {
	all, err := ReadDrivers(modules())
	require.NoError(t, err)
	chosen, err := Choose(all, packages(t), 1)
	require.NoError(t, err)
	assert.Nil(t, chosen.Get(Dir+"/wifi.bin.xz"))
	assert.Equal(t, "ice-1.2.pkg.xz", chosen.Get(Dir+"/intel/ice.pkg.xz").Target)
	assert.NotNil(t, chosen.Get(Dir+"/cxgb4/configs/t6.txt.xz"))

	content, err := chosen.ReadFile(Dir + "/ql2500_fw.bin.xz")
	require.NoError(t, err)
	r, err := xz.NewReader(bytes.NewReader(content))
	require.NoError(t, err)
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, "2500", string(text))
	assert.Equal(t, byte(1), content[7], "the kernel checks CRC32 alone")

	assert.Equal(t, "../firmware-a/copyright", chosen.Get("/usr/share/doc/firmware-b/copyright").Target)
	misses := FindMisses(all, func(glob string) bool { return len(chosen.Paths(Dir+"/"+glob)) > 0 })
	require.Len(t, misses, 1)
	assert.Equal(t, "wd719x-risc.bin", misses[0].Name)
	assert.NotEmpty(t, misses[0].Reason)
	assert.Empty(t, WithoutReason(misses))
}

func TestADriverWhoseFirmwareNobodyHasStopsTheBuild(t *testing.T) {
	all, err := ReadDrivers(modules())
	require.NoError(t, err)
	without := packages(t)
	without.Remove(Dir + "/ql2400_fw.bin")
	_, err = Choose(all, without, 1)
	assert.ErrorContains(t, err, "kernel/drivers/scsi/qla2xxx.ko names the firmware /usr/lib/firmware/ql2400_fw.bin")
	without = packages(t)
	without.Remove(Dir + "/intel/ice-1.2.pkg")
	_, err = Choose(all, without, 1)
	assert.ErrorContains(t, err, "a link leads to /usr/lib/firmware/intel/ice-1.2.pkg")
}

func TestMicrocodeIsAlignedAndThereOnce(t *testing.T) {
	archive, err := microcode(packages(t))
	require.NoError(t, err)
	assert.Zero(t, len(archive)%512)
	at := bytes.Index(archive, []byte(intel("first")+intel("second")))
	require.Positive(t, at)
	assert.Zero(t, at%alignment)
	assert.Equal(t, 1, bytes.Count(archive, []byte("first")))
	assert.Equal(t, 1, bytes.Count(archive, []byte("second")))

	found := map[string]string{}
	require.NoError(t, cpio.ForEachRecord(cpio.Newc.Reader(bytes.NewReader(archive)), func(r cpio.Record) error {
		text, err := io.ReadAll(io.NewSectionReader(r, 0, int64(r.FileSize)))
		found[strings.TrimRight(r.Name, "\x00")] = string(text)
		return err
	}))
	assert.Equal(t, "AMD!", found["kernel/x86/microcode/AuthenticAMD.bin"])
	assert.Equal(t, intel("first")+intel("second"), found["kernel/x86/microcode/GenuineIntel.bin"])

	torn := packages(t)
	torn.Remove(Dir + "/intel-ucode/06-02-01")
	require.NoError(t, torn.File(Dir+"/intel-ucode/06-02-01", 0o644, tree.Bytes(intel("second")[:60]), "test"))
	_, err = microcode(torn)
	assert.ErrorContains(t, err, "06-02-01: an update of microcode is to have 64 bytes, and 60 follow")

	none, err := microcode(tree.New(1))
	require.NoError(t, err)
	assert.Nil(t, none)
}

// Other programs than ours read the archive as well: cpio of Debian, as the kernel does.
func TestCpioReadsMicrocode(t *testing.T) {
	if _, err := exec.LookPath("cpio"); err != nil {
		t.Skip("there is no cpio here")
	}
	archive, err := microcode(packages(t))
	require.NoError(t, err)
	dir := t.TempDir()
	cmd := exec.Command("cpio", "-i", "-d", "--quiet")
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(archive)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	text, err := os.ReadFile(filepath.Join(dir, makers[1].file))
	require.NoError(t, err)
	assert.Equal(t, intel("first")+intel("second"), string(text))
}
