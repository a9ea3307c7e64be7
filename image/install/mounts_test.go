package install

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestMountPointsAreFound among those of this machine, wherever a link leads to them.
func TestMountPointsAreFound(t *testing.T) {
	assert.True(t, isMountRoot("/proc"))
	assert.False(t, isMountRoot("/proc/self"))
	assert.False(t, isMountRoot("/proc/none"))

	dir := t.TempDir()
	require.NoError(t, os.Symlink("/", filepath.Join(dir, "link")))
	for path, want := range map[string]string{
		"/proc":                           "/proc",
		filepath.Join(dir, "link/proc"):   "/proc",
		filepath.Join(dir, "link"):        "", // it would be removed itself
		filepath.Join(dir, "absent/data"): "",
		dir:                               "",
	} {
		found, err := findMount(path)
		require.NoError(t, err)
		assert.Equal(t, want, found, path)
	}
}

// TestWhatIsMountedThereStays: an uninstallation does not remove the files of another file system, and leaves a disk
// that was mounted for the installation.
func TestWhatIsMountedThereStays(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), "ns") || os.Getuid() != 0 {
		t.Skip("mounts in a namespace of its own: needs root and FIRSTLIGHT_TEST=ns")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and its namespace with it
	require.NoError(t, unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS))
	require.NoError(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))

	h := newHost(t)
	dir := h.prefix + Dir
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"))
	require.NoError(t, os.Mkdir(dir+"/lost+found", 0o700))
	h.install(newRoot(t, "1"))

	photos := dir + "/" + dataDir + "/my photos"
	require.NoError(t, os.MkdirAll(photos, 0o755))
	require.NoError(t, unix.Mount("tmpfs", photos, "tmpfs", 0, ""))
	require.NoError(t, os.WriteFile(photos+"/photo", nil, 0o644))
	before := h.files()
	assert.ErrorContains(t, h.installation().Uninstall(false), "something is mounted at "+photos)
	assert.Equal(t, before, h.files())
	assert.True(t, h.active)

	require.NoError(t, h.installation().Uninstall(true))
	assert.FileExists(t, photos+"/photo")
	require.NoError(t, unix.Unmount(photos, 0))
	require.NoError(t, h.installation().Uninstall(false))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1)
	assert.Equal(t, "lost+found", left[0].Name())
	require.NoError(t, unix.Unmount(dir, 0))
}

// TestAMountThatWaitsForTheNetworkIsFound in fstab.
func TestAMountThatWaitsForTheNetworkIsFound(t *testing.T) {
	for _, c := range []struct{ fstab, path, want string }{
		{"", Dir, ""},
		{"/dev/sda1 / ext4 defaults,_netdev 0 1\n", Dir, ""},
		{"# x\n/dev/sdb1 /var ext4 _netdev,x-systemd.requires=iscsi.service 0 2\n", Dir, "/var"},
		{"/dev/sdb1 /var/lib/firstlight xfs noatime,_netdev 0 2\n", Dir, "/var/lib/firstlight"},
		{"/dev/sdb1 /var/lib/firstlight/ xfs nofail 0 2\n/dev/sdc1 /var ext4 _netdev 0 2", Dir, ""},
		{"nas:/home /home nfs rw 0 0\n/dev/sdb1 /var/lib/fir ext4 _netdev 0 0\n", Dir, ""},
		{"nas:/local /usr/local nfs4 ro 0 0\n", ProgramPath, "/usr/local"},
		{"/dev/sdb1 /usr/local ext4 ro 0 0\n", ProgramPath, ""},
	} {
		assert.Equal(t, c.want, findLateMount(c.fstab, c.path), c)
	}
}
