package diskimage

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const fileLength = 1 << 20

// header is a version 3 header of a 10 GiB disk in a file of fileLength, spoiled as wanted.
func header(spoil func(h []byte)) []byte {
	h := make([]byte, HeadLength)
	be := binary.BigEndian
	copy(h, "QFI\xfb")
	be.PutUint32(h[4:], 3)
	be.PutUint32(h[20:], 16)
	be.PutUint64(h[24:], 10<<30)
	be.PutUint32(h[36:], 20)
	be.PutUint64(h[40:], 3<<16)
	be.PutUint64(h[48:], 1<<16)
	be.PutUint32(h[56:], 1)
	be.PutUint32(h[96:], 4)
	be.PutUint32(h[100:], 112)
	if spoil != nil {
		spoil(h)
	}
	return h
}

// sector is a boot sector, with something at its beginning.
func sector(begin string) []byte {
	b := make([]byte, HeadLength)
	copy(b, begin)
	b[510], b[511] = 0x55, 0xaa
	return b
}

func TestCheck(t *testing.T) {
	be := binary.BigEndian
	for _, c := range []struct {
		name   string
		head   []byte
		length int64
		want   Info
		says   string
	}{
		{"qcow2 version 3", header(nil), fileLength, Info{"qcow2", 10 << 30}, ""},
		{"qcow2 version 2", header(func(h []byte) { be.PutUint32(h[4:], 2); clear(h[72:]) }), fileLength, Info{"qcow2", 10 << 30}, ""},
		{"qcow2 not closed properly", header(func(h []byte) { h[79] = 1 }), fileLength, Info{"qcow2", 10 << 30}, ""},
		{"qcow2 compressed by zstd", header(func(h []byte) { h[79] = 8 }), fileLength, Info{"qcow2", 10 << 30}, ""},
		{"version 1", header(func(h []byte) { be.PutUint32(h[4:], 1) }), fileLength, Info{}, "version 1"},
		{"backing file", header(func(h []byte) { be.PutUint64(h[8:], 0x200) }), fileLength, Info{}, "backing file"},
		{"data file", header(func(h []byte) { h[79] = 4 }), fileLength, Info{}, "in another file"},
		{"encrypted", header(func(h []byte) { be.PutUint32(h[32:], 2) }), fileLength, Info{}, "encrypted"},
		{"corrupt", header(func(h []byte) { h[79] = 2 }), fileLength, Info{}, "corrupt"},
		{"feature of the future", header(func(h []byte) { h[79] = 0x20 }), fileLength, Info{}, "unknown"},
		{"clusters too small", header(func(h []byte) { be.PutUint32(h[20:], 8) }), fileLength, Info{}, "clusters"},
		{"clusters beyond reason", header(func(h []byte) { be.PutUint32(h[20:], 0xffffffff) }), fileLength, Info{}, "clusters"},
		{"no disk", header(func(h []byte) { be.PutUint64(h[24:], 0) }), fileLength, Info{}, "0 bytes"},
		{"table too short", header(func(h []byte) { be.PutUint32(h[36:], 19) }), fileLength, Info{}, "too few"},
		{"table beyond the end", header(nil), 3 << 16, Info{}, "truncated"},
		{"table that wraps around", header(func(h []byte) { be.PutUint64(h[40:], 0xffffffffffff0000) }), fileLength, Info{}, "truncated"},
		{"table in the header", header(func(h []byte) { be.PutUint64(h[40:], 0) }), fileLength, Info{}, "truncated"},
		{"counts beyond the end", header(func(h []byte) { be.PutUint32(h[56:], 0x7fffffff) }), fileLength, Info{}, "reference counts"},
		{"only a magic", []byte("QFI\xfb"), 4, Info{}, "less than its header"},
		{"only a version 2 header's length", header(nil)[:72], 72, Info{}, "less than its header"},
		{"raw", sector(""), 512 * 2048, Info{"raw", 512 * 2048}, ""},
		{"raw cut off", sector(""), 512*2048 - 1, Info{}, "whole sectors"},
		{"no boot signature", make([]byte, HeadLength), 4096, Info{}, "boot signature"},
		{"short", []byte("text"), 4, Info{}, "less than a sector"},
		{"nothing", nil, 0, Info{}, "less than a sector"},
		{"gzip that looks bootable", sector("\x1f\x8b"), 4096, Info{}, "gzip"},
		{"xz", sector("\xfd7zXZ\x00"), 4096, Info{}, "xz"},
		{"zstd", sector("\x28\xb5\x2f\xfd"), 4096, Info{}, "zstd"},
		{"vmdk", sector("KDMV"), 4096, Info{}, "qemu-img convert"},
		{"vhdx", sector("vhdxfile"), 4096, Info{}, "VHDX"},
		{"ISO that looks bootable", append(sector("")[:32<<10], "\x01CD001\x01"...), 64 << 10, Info{}, "an ISO, which is started"},
		{"luks", sector("LUKS\xba\xbe"), 4096, Info{}, "encrypted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Check(c.head, c.length)
			assert.Equal(t, c.want, got)
			if c.says == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, c.says)
		})
	}
}

// What QEMU itself makes is read as QEMU means it.
func TestImagesOfQEMU(t *testing.T) {
	tool, err := exec.LookPath("qemu-img")
	if err != nil {
		t.Skip("no qemu-img; make deps installs it")
	}
	dir := t.TempDir()
	run := func(args ...string) {
		out, err := exec.Command(tool, args...).CombinedOutput()
		require.NoError(t, err, "qemu-img %q: %s", args, out)
	}
	for _, c := range []struct {
		name, says string
		args       []string
	}{
		{"plain", "", []string{"create", "-q", "-f", "qcow2", "FILE", "3G"}},
		{"old", "", []string{"create", "-q", "-f", "qcow2", "-o", "compat=0.10", "FILE", "3G"}},
		{"small clusters", "", []string{"create", "-q", "-f", "qcow2", "-o", "cluster_size=512", "FILE", "3G"}},
		{"large clusters", "", []string{"create", "-q", "-f", "qcow2", "-o", "cluster_size=2M", "FILE", "3G"}},
		{"subclusters", "", []string{"create", "-q", "-f", "qcow2", "-o", "extended_l2=on,cluster_size=128k", "FILE", "3G"}},
		{"zstd", "", []string{"create", "-q", "-f", "qcow2", "-o", "compression_type=zstd", "FILE", "3G"}},
		{"backed", "backing file", []string{"create", "-q", "-f", "qcow2", "-b", filepath.Join(dir, "plain"), "-F", "qcow2", "FILE"}},
		{"with data file", "in another file", []string{"create", "-q", "-f", "qcow2", "-o", "data_file=" + filepath.Join(dir, "data"), "FILE", "3G"}},
		{"vmdk", "VMDK", []string{"create", "-q", "-f", "vmdk", "FILE", "3G"}},
		{"vdi", "VDI", []string{"create", "-q", "-f", "vdi", "FILE", "3G"}},
		{"vhdx", "VHDX", []string{"create", "-q", "-f", "vhdx", "FILE", "3G"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(dir, c.name)
			for i := range c.args {
				if c.args[i] == "FILE" {
					c.args[i] = path
				}
			}
			run(c.args...)
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			got, err := Check(data, int64(len(data)))
			if c.says != "" {
				assert.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, Info{"qcow2", 3 << 30}, got)
		})
	}
}

func FuzzCheck(f *testing.F) {
	f.Add(header(nil), int64(fileLength))
	f.Add(sector(""), int64(4096))
	f.Add([]byte("QFI\xfb"), int64(-1))
	f.Fuzz(func(t *testing.T, head []byte, length int64) {
		got, err := Check(head, length)
		if err == nil {
			assert.Contains(t, []string{"qcow2", "raw"}, got.Format)
			assert.Positive(t, got.VirtualSize)
		}
	})
}
