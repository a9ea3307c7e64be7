package lab_test

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/disk/disktest"
	"firstlight.dev/firstlight/image/lab"
	"firstlight.dev/firstlight/image/owner"
	"firstlight.dev/firstlight/image/owner/ownertest"
)

const (
	lineEnforced  = "UEFI Secure Boot is enabled"                        // the kernel, of its firmware
	lineOwners    = "by the owner's keys, from the firmware to the root" // firstlightd storage
	lineSignature = "what this stick starts was refused"                 // GRUB
	lineDenied    = "Access Denied"                                      // OVMF
)

// ownersStick is a stick that an owner has signed, with a site that asks for the keys in the firmware.
func ownersStick(t *testing.T, k owner.Keys, image string) string {
	t.Helper()
	path := ownertest.Sign(t, k, image)
	text := []byte("name: owned\nappliance: {secureBoot: {enroll: true}}\n")
	disktest.PutFiles(t, path, stick.PartitionSite, disk.TextFile("site.yaml", text))
	return path
}

// fileOffset is where the content of a file of a FAT partition begins in an image, and how long it is.
func fileOffset(t *testing.T, image, name, file string) (at, size int64) {
	t.Helper()
	f, err := os.Open(image)
	require.NoError(t, err)
	defer f.Close()
	table, err := gpt.ReadPrimary(f)
	require.NoError(t, err)
	p, ok := table.Find(name)
	require.True(t, ok, name)
	volume, err := fat.Open(io.NewSectionReader(f, p.Offset(), p.Size()))
	require.NoError(t, err)
	at, err = volume.Offset(file)
	require.NoError(t, err)
	content, err := volume.ReadFile(file)
	require.NoError(t, err)
	return p.Offset() + at, int64(len(content))
}

// TestOwnersKeysAreEnrolledAndEnforced on a machine whose firmware has no keys: the first start writes them and restarts,
// the next one is checked from the firmware to the root. One changed byte of each part is refused from then on, and so is
// the same stick as nobody has signed it.
func TestOwnersKeysAreEnrolledAndEnforced(t *testing.T) {
	image := needImage(t, "qemu-all")
	path := ownersStick(t, ownertest.NewKeys(t), image)
	m := newMachine(t, lab.Config{
		Firmware: lab.SetupMode, Disks: []lab.Disk{{Image: path, Bus: lab.USB, Direct: true}},
	})
	startsFrom(t, m)
	see(t, m, lineEnforced) // the restart is over before all that was said before it is on the screen
	see(t, m, lineOwners)
	require.NoError(t, m.Kill())

	grub := strings.TrimPrefix(stick.LoaderPath, "/")
	rootAt, rootSize := rootData(t, path)
	for _, c := range []struct{ name, partition, file, line string }{
		{"initramfs", stick.PartitionBootA, stick.InitramfsName, lineSignature},
		{"kernel", stick.PartitionBootA, stick.KernelName, lineSignature},
		{"command line", stick.PartitionBootA, stick.SlotConfigName, lineSignature},
		{"GRUB with its configuration", stick.PartitionESP, grub, lineDenied},
		{"root", "", "", lineNoStart},
	} {
		at := rootAt + rootSize - 16
		if c.file != "" {
			begin, size := fileOffset(t, path, c.partition, c.file)
			at = begin + size/2
		}
		flipByte(t, path, at)
		before := len(m.Console().Lines())
		require.NoError(t, m.Start(t.Context()))
		see(t, m, c.line)
		require.NoError(t, m.Kill())
		flipByte(t, path, at)
		if c.name != "root" {
			for _, line := range m.Console().Lines()[before:] {
				assert.NotContains(t, line, lineInit, c.name)
			}
		}
	}

	require.NoError(t, os.Rename(disktest.CopyImage(t, image), path))
	require.NoError(t, m.Start(t.Context()))
	see(t, m, lineDenied)
}

// TestAnUpdateOfAnOwnersStick on firmware that has this owner's keys alone: what this owner signed starts from the other
// slot, once; what another owner signed is refused by GRUB when it is tried, and the version before is started.
func TestAnUpdateOfAnOwnersStick(t *testing.T) {
	image := needImage(t, "qemu-all")
	k := ownertest.NewKeys(t)
	path, next := ownersStick(t, k, image), nextImage(t, image)
	m := newMachine(t, lab.Config{
		Firmware: lab.SetupMode, Disks: []lab.Disk{{Image: path, Bus: lab.USB, Direct: true}},
	})
	startsFrom(t, m)
	see(t, m, lineEnforced)
	require.NoError(t, m.Kill())

	writeSlotB(t, path, ownertest.Sign(t, k, next))
	require.NoError(t, m.Start(t.Context()))
	see(t, m, lineTries)
	see(t, m, lineEnforced)
	see(t, m, lineNextRuns)
	require.NoError(t, m.Kill())

	writeSlotB(t, path, ownertest.Sign(t, ownertest.NewKeys(t), next)) // firstlightd update refuses it
	require.NoError(t, m.Start(t.Context()))
	see(t, m, lineTries)
	see(t, m, lineSignature)
	see(t, m, lineEnforced)
	assert.NotContains(t, see(t, m, lineStarts), nextVersion)
}
