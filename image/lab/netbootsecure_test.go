package lab_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/lab"
)

// TestSecureNetbootRefusesWhatIsNotSigned: firmware that enforces Secure Boot loads no iPXE, shim no GRUB of which a
// byte was changed, and GRUB no such kernel. Nothing of what was changed runs, and the screen says so.
func TestSecureNetbootRefusesWhatIsNotSigned(t *testing.T) {
	dir, isInside := enterNetbootNamespace(t)
	if !isInside {
		return
	}
	for _, c := range []struct {
		name   string
		mac    string
		change func(t *testing.T, parts *netbootFiles)
		screen []string
		loaded string // in the daemon's log: what is refused was sent whole
		next   string // in the daemon's log: what it would ask for
	}{
		{
			"ipxe", netbootMAC, func(*testing.T, *netbootFiles) {}, []string{"Access Denied"},
			"file=snponly.efi result=done", "script",
		},
		{
			"grub", secureMAC,
			func(t *testing.T, parts *netbootFiles) { parts.signed = changedCopy(t, parts.signed, "grubx64.efi") },
			[]string{"Security Violation"}, "file=grubx64.efi result=done", "grub.cfg",
		},
		{
			"kernel", secureMAC,
			func(t *testing.T, parts *netbootFiles) { parts.web = changedCopy(t, parts.web, "vmlinuz") },
			[]string{"bad shim signature", "could not load or start the ramdisk, asking again"},
			"path=/vmlinuz", "path=/ramdisk",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			parts := netbootPaths(dir)
			c.change(t, &parts)
			m, log, _ := newNetbootMachine(t, parts, lab.SecureBoot, c.mac, "virtio-net-pci,romfile=", nil)
			require.NoError(t, m.Start(t.Context()))
			for _, text := range c.screen {
				require.Eventually(t, func() bool { return strings.Contains(m.Console().Tail(1000), text) },
					lab.BootDeadline, time.Second, "the screen does not say %q", text) // shim's box is no line that ends
			}
			assert.Contains(t, readAll(log), c.loaded)
			assert.NotContains(t, readAll(log), c.next)
			assert.NotContains(t, m.Console().Tail(1000), "Linux version")
		})
	}
}

// TestSecureNetbootContinuesToTheDisk: a machine that waits in GRUB while it is decided that it boots its own disk
// starts that, signed from shim to kernel.
func TestSecureNetbootContinuesToTheDisk(t *testing.T) {
	dir, isInside := enterNetbootNamespace(t)
	if !isInside {
		return
	}

	parts := netbootPaths(dir)
	parts.secure = "action: wait, reason: nothing is decided yet"
	parts.disks = []lab.Disk{{Image: secureDisk(t, parts), Bus: lab.Virtio, BootIx: 2}}
	m, _, stop := newNetbootMachine(t, parts, lab.SecureBoot, secureMAC, "virtio-net-pci,romfile=", nil)
	require.NoError(t, m.Start(t.Context()))
	see(t, m, "waits: nothing is decided yet")
	stop()
	parts.secure = "action: disk"
	log, _ := startBootServices(t, parts)
	see(t, m, "boots its own disk")
	see(t, m, "secureboot: Secure boot enabled")
	assert.Contains(t, see(t, m, "NETBOOT-REACHED-INIT"), "from.disk=yes")
	assert.Contains(t, readAll(log), `grub: script" mac=`+secureMAC)
	assert.NotContains(t, readAll(log), "path=/vmlinuz")
}

// secureDisk is a disk as an installed system has it: shim, GRUB, kernel and ramdisk on an ESP.
func secureDisk(t *testing.T, parts netbootFiles) string {
	config := "linux /vmlinuz console=ttyS0 panic=-1 from.disk=yes\ninitrd /ramdisk\nboot\n"
	path := filepath.Join(t.TempDir(), "disk.img")
	require.NoError(t, disk.Write(t.Context(), path, disk.Layout{
		GUID: "00112233-4455-6677-8899-000000000001",
		Partitions: []disk.Partition{{
			Name: "ESP",
			Type: gpt.TypeESP,
			GUID: "00112233-4455-6677-8899-000000000002",
			Size: 64 << 20,
			Content: disk.FAT{Label: "ESP", Files: []disk.File{
				disk.HostFile("EFI/BOOT/BOOTX64.EFI", filepath.Join(parts.signed, "shimx64.efi")),
				disk.HostFile("EFI/BOOT/grubx64.efi", filepath.Join(parts.signed, diskGRUB)),
				disk.TextFile(stick.GrubConfigPath, []byte(config)),
				disk.HostFile("vmlinuz", filepath.Join(parts.web, "vmlinuz")),
				disk.HostFile("ramdisk", filepath.Join(parts.web, "ramdisk")),
			}},
		}},
	}))
	return path
}

// changedCopy is a folder with the same files, of which one has another byte in the middle of its code.
func changedCopy(t *testing.T, dir, name string) string {
	to := t.TempDir()
	require.NoError(t, os.CopyFS(to, os.DirFS(dir)))
	path := filepath.Join(to, name)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	at := len(content) / 2
	require.False(t, bytes.Equal(content[at:at+64], make([]byte, 64)), "these are zeros that nothing may read")
	flipByte(t, path, int64(at))
	return to
}
