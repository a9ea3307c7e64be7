package image

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/debian"
	"firstlight.dev/firstlight/image/recipe"
	"firstlight.dev/firstlight/image/tree"
)

func TestWhatIsInstalledIsHeldToTheLock(t *testing.T) {
	tr := tree.New(1)
	require.NoError(t, tr.File("/var/lib/dpkg/status", 0o644, tree.Bytes("Package: a\nVersion: 1\n\nPackage: b\nVersion: 2\n"), "test"))
	root := &recipe.Root{Name: "box"}
	a, b := debian.Package{Name: "a", Version: "1"}, debian.Package{Name: "b", Version: "2"}
	assert.NoError(t, checkInstalled(tr, root, []debian.Package{a, b}))
	assert.EqualError(t, checkInstalled(tr, root, []debian.Package{a}), "install root box: b 2 got in and is not locked")
	assert.EqualError(t, checkInstalled(tr, root, []debian.Package{a, b, {Name: "c", Version: "3"}}), `install root box: c is "" and locked is 3`)
}

func TestNoSecretAndNoTraceStays(t *testing.T) {
	tr := tree.New(1)
	for _, p := range []string{"/etc/machine-id", "/etc/nvme/hostid", "/etc/nvme/hostnqn", "/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_rsa_key.pub", "/etc/resolv.conf", "/etc/hostname",
		"/var/log/dpkg.log", "/var/log/apt/term.log", "/run/lock/x", "/tmp/x", "/var/cache/apt/pkgcache.bin", "/var/lib/systemd/random-seed"} {
		require.NoError(t, tr.File(p, 0o600, nil, "a script"))
	}
	for _, glob := range alwaysRemoved {
		tr.Remove(glob)
	}
	assert.NoError(t, tr.Walk(func(p string, n *tree.Node) error {
		assert.Equal(t, tree.Dir, n.Type, p)
		return nil
	}))
	for _, dir := range []string{"/run", "/tmp", "/var/log", "/etc/ssh"} {
		assert.NotNil(t, tr.Get(dir), "%s stays as a directory", dir)
	}
}

func TestNodeGrubConfig(t *testing.T) {
	tr := tree.New(1)
	_, err := nodeGrubConfig(tr, "u", "quiet")
	assert.ErrorContains(t, err, "0 files match and not one")
	require.NoError(t, tr.File("/boot/vmlinuz-6", 0o644, nil, "t"))
	require.NoError(t, tr.File("/boot/initrd.img-6", 0o644, nil, "t"))
	text, err := nodeGrubConfig(tr, "u", "quiet")
	require.NoError(t, err)
	assert.Equal(t, "search --no-floppy --fs-uuid --set=root u\nlinux /boot/vmlinuz-6 root=UUID=u quiet\ninitrd /boot/initrd.img-6\nboot\n", string(text))
	require.NoError(t, tr.File("/boot/grub/grub.cfg", 0o644, nil, "t"))
	text, err = nodeGrubConfig(tr, "u", "")
	require.NoError(t, err)
	assert.Contains(t, string(text), "configfile /boot/grub/grub.cfg")
	assert.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, uuid("a", "b"))
}

func TestNameVersion(t *testing.T) {
	tr := tree.New(1)
	assert.Error(t, nameVersion(tr))
	require.NoError(t, tr.File("/usr/lib/os-release", 0o644, tree.Bytes("ID=debian\n"), "base-files"))
	require.NoError(t, nameVersion(tr))
	text, err := tr.ReadFile("/usr/lib/os-release")
	require.NoError(t, err)
	assert.Regexp(t, `(?s)^ID=debian\n.*IMAGE_VERSION=\d`, string(text))
}
