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

	"firstlight.dev/firstlight/image/lab"
)

// TestSecureNetbootRefusesWhatIsNotSigned: firmware that enforces Secure Boot loads no iPXE, shim no GRUB of which a byte
// was changed, and GRUB no such kernel. Nothing of what was changed runs, and the screen says so.
func TestSecureNetbootRefusesWhatIsNotSigned(t *testing.T) {
	needKind(t, "qemu")
	if os.Getuid() != 0 {
		t.Skip("needs root: the machine hangs on a tap device in a network namespace")
	}
	dir := os.Getenv(netbootDir)
	if dir == "" {
		dir = t.TempDir()
		netbootParts(t, dir)
		runInNamespace(t, dir)
		return
	}
	makeNetbootLink(t)
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
			[]string{"bad shim signature", "could not load or start the ramdisk, asking again"}, "path=/vmlinuz", "path=/ramdisk",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			parts := netbootPaths(dir)
			c.change(t, &parts)
			m, log := newNetbootMachine(t, parts, lab.SecureBoot, c.mac, "virtio-net-pci,romfile=", nil)
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
