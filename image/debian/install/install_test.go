package install

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/debian"
	"firstlight.dev/firstlight/image/tree"
)

func TestWhatIsInstalledIsHeldToTheLock(t *testing.T) {
	tr := tree.New(1)
	require.NoError(t, tr.File("/var/lib/dpkg/status", 0o644, tree.Bytes("Package: a\nVersion: 1\n\nPackage: b\nVersion: 2\n"), "test"))
	check := func(packages ...debian.Package) error { return Root{Packages: packages}.check(tr) }
	a, b := debian.Package{Name: "a", Version: "1"}, debian.Package{Name: "b", Version: "2"}
	assert.NoError(t, check(a, b))
	assert.EqualError(t, check(a), "b 2 got in and is not locked")
	assert.EqualError(t, check(a, b, debian.Package{Name: "c", Version: "3"}), `c is "" and locked is 3`)
}

func TestNoSecretAndNoTraceStays(t *testing.T) {
	tr := tree.New(1)
	for _, p := range []string{"/etc/machine-id", "/etc/nvme/hostid", "/etc/nvme/hostnqn", "/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_rsa_key.pub", "/etc/resolv.conf", "/etc/hostname",
		"/var/log/dpkg.log", "/var/log/apt/term.log", "/run/lock/x", "/tmp/x", "/var/cache/apt/pkgcache.bin", "/var/lib/systemd/random-seed"} {
		require.NoError(t, tr.File(p, 0o600, nil, "a script"))
	}
	RemoveTraces(tr)
	assert.NoError(t, tr.Walk(func(p string, n *tree.Node) error {
		assert.Equal(t, tree.Dir, n.Type, p)
		return nil
	}))
	for _, dir := range []string{"/run", "/tmp", "/var/log", "/etc/ssh"} {
		assert.NotNil(t, tr.Get(dir), "%s stays as a directory", dir)
	}
}
