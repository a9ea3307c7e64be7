package testrack

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/inspection"
	"firstlight.dev/firstlight/daemon/uploads/blobs/diskimage"
	"firstlight.dev/firstlight/pxe/disc"
)

// physicalVolume is the label of LVM at the beginning of a partition (LVM2, lib/format_text/layout.h and
// lib/label/label.h). libblkid takes none whose checksum is wrong.
func physicalVolume() []byte {
	v := make([]byte, 4<<20) // on what is as small as a diskette libblkid looks for none
	label := v[512:1024]
	copy(label, "LABELONE")
	binary.LittleEndian.PutUint64(label[8:], 1) // the sector that this is
	binary.LittleEndian.PutUint32(label[20:], 32)
	copy(label[24:], "LVM2 001")
	copy(label[32:], "4YQalyvokUm4Ss2aiPvtZo03HWfFY3ab")
	binary.LittleEndian.PutUint32(label[16:], ^crc32.Update(^uint32(0xf597a6cf), crc32.IEEETable, label[20:]))
	return v
}

// TestDisksOfOtherImagesAreKnown: an image of somebody else's is taken as an upload whatever its root is, and a disk with
// it is known for what it holds, and for the server's that the appliance installed.
func TestDisksOfOtherImagesAreKnown(t *testing.T) {
	for _, name := range []string{"python3", "wipefs", "sfdisk", "mkfs.ext4"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("needs the tools that the ramdisk has: ", err)
		}
	}
	const size = 400 << 20
	for name, c := range map[string]struct {
		kind string
		make func(t *testing.T, root string) // fills the partition of the root
	}{
		"ext4":  {"ext4", makeFileSystem("mkfs.ext4", "-q")},
		"xfs":   {"xfs", makeFileSystem("mkfs.xfs", "-q")},
		"btrfs": {"btrfs", makeFileSystem("mkfs.btrfs", "-q")},
		"LVM": {"LVM2_member", func(t *testing.T, root string) {
			require.NoError(t, os.WriteFile(root, physicalVolume(), 0o644))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			disk, root, drive := filepath.Join(dir, "disk"), filepath.Join(dir, "root"), filepath.Join(dir, "drive")
			for _, file := range []string{disk, root} {
				require.NoError(t, os.WriteFile(file, nil, 0o644))
				require.NoError(t, os.Truncate(file, size))
			}
			table := exec.Command("sfdisk", "-q", disk)
			table.Stdin = bytes.NewBufferString("label: gpt\nsize=20MiB, type=uefi\nsize=340MiB\n")
			out, err := table.CombinedOutput()
			require.NoError(t, err, "%s", out)
			c.make(t, root)

			head := make([]byte, diskimage.HeadLength)
			f, err := os.Open(disk)
			require.NoError(t, err)
			defer f.Close()
			_, err = io.ReadFull(f, head)
			require.NoError(t, err)
			info, err := diskimage.Check(head, size)
			require.NoError(t, err, "it is refused as an upload")
			assert.Equal(t, diskimage.Info{Format: "raw", VirtualSize: size}, info)

			assert.Equal(t, inspection.Disk{Kinds: []string{"gpt", c.kind}}, withoutFingerprint(t, disk, root))
			meta := `{"uuid": "0b1c", "metal3-namespace": "metal3", "metal3-name": "node-1", "firstlight-site": "edge-7"}`
			require.NoError(t, os.WriteFile(drive, configDrive("{}", meta), 0o644))
			assert.Equal(t, inspection.Disk{
				Kinds: []string{"gpt", c.kind, "iso9660"},
				Mark:  &inspection.Mark{Site: "edge-7", Node: "node-1", ID: "0b1c", Time: "2026-11-26 11:22"},
			}, withoutFingerprint(t, disk, root, drive))
		})
	}
}

func makeFileSystem(program string, args ...string) func(*testing.T, string) {
	return func(t *testing.T, root string) {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("scripts/deps test installs it: ", err)
		}
		out, err := exec.Command(program, append(args, root)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// withoutFingerprint is what the ramdisk's collector says of a disk with these partitions, whose fingerprint it checks.
func withoutFingerprint(t *testing.T, disk string, partitions ...string) inspection.Disk {
	t.Helper()
	const ask = "import json, sys; sys.path.insert(0, sys.argv[1]); import firstlight; " +
		"print(json.dumps({sys.argv[2]: firstlight.holds(sys.argv[2], sys.argv[3:])}))"
	args := append([]string{"-B", "-c", ask, filepath.Dir(filepath.FromSlash(collector)), disk}, partitions...)
	out, err := exec.Command("python3", args...).Output()
	require.NoError(t, err)
	got, err := inspection.Read(map[string]json.RawMessage{inspection.Key: out})
	require.NoError(t, err)
	d := got[disk]
	assert.Regexp(t, `^data-[0-9a-f]{12}$`, d.Fingerprint)
	d.Fingerprint = ""
	return d
}

// TestADiscIsNoImage: what is started from a drive is refused as an upload, also with the boot sector by which a stick
// starts it.
func TestADiscIsNoImage(t *testing.T) {
	program := bytes.Repeat([]byte("program"), 250_000)
	size := int64(len(program))
	layout, err := disc.NewLayout(disc.Loaders{Shim: program, GRUB: program}, size, size)
	require.NoError(t, err)
	made, err := layout.Disc(bytes.NewReader(program), bytes.NewReader(program), nil)
	require.NoError(t, err)
	whole, err := io.ReadAll(made)
	require.NoError(t, err)
	for _, sign := range [][2]byte{{whole[510], whole[511]}, {0x55, 0xaa}} {
		whole[510], whole[511] = sign[0], sign[1]
		_, err := diskimage.Check(whole, int64(len(whole)))
		assert.ErrorContains(t, err, "it is an ISO, which is started from a drive; use the disk image of that system, qcow2 or raw")
	}
}
