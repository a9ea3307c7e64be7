package initrd

import (
	"bytes"
	"debug/elf"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/stick"
)

// testRoot is a root with a program as systemd: this test's.
func testRoot(t *testing.T) string {
	root := t.TempDir()
	for _, dir := range []string{"dev", "proc", "sys", "run", "etc", "usr/lib/systemd"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "usr/lib/os-release"), []byte("IMAGE_VERSION=0.1.0\n"), 0o644))
	program, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(root, systemd), program, 0o755))
	return root
}

func TestRootIsReadBeforeTheSwitch(t *testing.T) {
	sane := testRoot(t)
	b := stick.BootInfo{Version: "0.1.0"}
	require.NoError(t, prepareRoot(&b, sane))
	id, err := os.ReadFile(filepath.Join(sane, "etc/machine-id"))
	require.NoError(t, err)
	assert.Equal(t, b.MachineID.ID, strings.TrimSpace(string(id)))

	for name, damage := range map[string]func(root string) error{
		"no systemd":     func(root string) error { return os.Remove(filepath.Join(root, systemd)) },
		"half a systemd": func(root string) error { return os.Truncate(filepath.Join(root, systemd), 4000) },
		"no /run":        func(root string) error { return os.Remove(filepath.Join(root, "run")) },
	} {
		root := testRoot(t)
		require.NoError(t, damage(root))
		assert.Error(t, prepareRoot(&stick.BootInfo{Version: "0.1.0"}, root), name)
		assert.NoFileExists(t, filepath.Join(root, "etc/machine-id"), name)
	}
}

// TestDataIsNotWritten: the identity is read from a file system that has the same bytes afterwards.
func TestDataIsNotWritten(t *testing.T) {
	if !strings.Contains(os.Getenv("FIRSTLIGHT_TEST"), "ns") {
		t.Skip("needs root and namespaces: set FIRSTLIGHT_TEST=ns")
	}
	image := os.Getenv("FIRSTLIGHT_DATA_DEVICE")
	if image != "" { // in the mount namespace
		id, ok := storedMachineID(stick.BootInfo{Partitions: []stick.Partition{{Name: stick.PartitionData, Path: image}}})
		assert.True(t, ok)
		assert.Equal(t, strings.Repeat("7", 32), id)
		return
	}

	dir := t.TempDir()
	image = filepath.Join(dir, "data")
	tree := filepath.Join(dir, "tree")
	require.NoError(t, os.MkdirAll(filepath.Join(tree, filepath.Dir(stick.MachineIDName)), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(tree, stick.MachineIDName), []byte(strings.Repeat("7", 32)+"\n"), 0o444))
	out, err := exec.Command("mke2fs", "-q", "-t", "ext4", "-d", tree, image, "8M").CombinedOutput()
	require.NoError(t, err, "%s", out)
	before, err := os.ReadFile(image)
	require.NoError(t, err)

	loop, err := exec.Command("losetup", "--find", "--show", image).Output()
	require.NoError(t, err)
	device := strings.TrimSpace(string(loop))
	inside := exec.Command("unshare", "--mount", "sh", "-c",
		`mount -t tmpfs none /run && exec "$0" -test.run='^TestDataIsNotWritten$' -test.v`, os.Args[0])
	inside.Env = append(os.Environ(), "FIRSTLIGHT_DATA_DEVICE="+device)
	out, err = inside.CombinedOutput()
	assert.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "--- PASS: TestDataIsNotWritten")
	require.NoError(t, exec.Command("losetup", "--detach", device).Run())

	after, err := os.ReadFile(image)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(before, after), "DATA was written to")
}

// TestDataIsOnlyReadBeforeTheRootRuns: nothing is written to DATA by who only wants the machine's identity.
func TestDataIsOnlyReadBeforeTheRootRuns(t *testing.T) {
	const want = unix.MS_RDONLY | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOSUID
	assert.EqualValues(t, want, dataFlags)
}

// worn is a file with a block that cannot be read, as dm-verity has it.
type worn struct {
	io.ReaderAt
	bad int64
}

func (w worn) ReadAt(b []byte, at int64) (int, error) {
	if at <= w.bad && w.bad < at+int64(len(b)) {
		return 0, unix.EIO
	}
	return w.ReaderAt.ReadAt(b, at)
}

// TestAProgramIsReadToItsEnd: a block in the middle of its code, which no header names, is found before it runs.
func TestAProgramIsReadToItsEnd(t *testing.T) {
	f, err := os.Open("/proc/self/exe")
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	_, err = readProgram(io.NewSectionReader(f, 0, info.Size()))
	require.NoError(t, err)

	e, err := elf.NewFile(f)
	require.NoError(t, err)
	code := e.Section(".text")
	middle := int64(code.Offset + code.FileSize/2)
	_, err = readProgram(io.NewSectionReader(worn{f, middle}, 0, info.Size()))
	assert.ErrorIs(t, err, unix.EIO)
}

// TestAnEncryptedDataSaysWhoseItIs before anything opens it.
func TestAnEncryptedDataSaysWhoseItIs(t *testing.T) {
	if _, err := exec.LookPath("cryptsetup"); err != nil {
		t.Skip("needs cryptsetup: scripts/deps test")
	}
	image := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.WriteFile(image, make([]byte, 32<<20), 0o600))
	format := exec.Command("cryptsetup", "luksFormat", "--batch-mode", "--type=luks2", "--pbkdf=pbkdf2",
		"--pbkdf-force-iterations=1000", "--key-file=-", "--uuid=01234567-89ab-4def-8123-456789abcdef", image)
	format.Stdin = strings.NewReader("key")
	out, err := format.CombinedOutput()
	require.NoError(t, err, "%s", out)

	id, ok := storedMachineID(stick.BootInfo{Partitions: []stick.Partition{{Name: stick.PartitionData, Path: image}}})
	assert.True(t, ok)
	assert.Equal(t, "0123456789ab4def8123456789abcdef", id)
}
