package sandbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// snapshots is where containerd has the files of layers.
const snapshots = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots"

// links are the layers that are links into the root: where they are, and where they lead.
func (b *box) links() map[string]string {
	b.t.Helper()
	all, err := filepath.Glob(b.appliance.DataPath(snapshots + "/*/fs"))
	require.NoError(b.t, err)
	links := map[string]string{}
	for _, at := range all {
		if to, err := os.Readlink(at); err == nil {
			links[at] = to
		}
	}
	return links
}

func (b *box) names() []string {
	return strings.Fields(b.run("ctr", "-n", "k8s.io", "images", "list", "-q"))
}

// TestImagesAreRunFromWhereTheyLie spoils what containerd has of the images in every way that a power cut,
// another stick or an earlier version can, and wants Kubernetes to come up with it.
func TestImagesAreRunFromWhereTheyLie(t *testing.T) {
	b := newBox(t, "images")
	made, err := b.appliance.AwaitStage(b.ctx, "images-present", t.Output())
	require.NoError(t, err)
	t.Logf("images-present took %.2f s", made.Seconds)
	b.run("systemctl", "stop", "firstlightd")
	links, names := b.links(), b.names()
	require.Greater(t, len(links), 5)
	var spoilt int
	for at := range links {
		require.NoError(t, os.Remove(at))
		switch spoilt++; spoilt % 4 {
		case 0: // not on the disk when the power went
		case 1: // made, not linked
			require.NoError(t, os.Mkdir(at, 0o755))
		case 2: // another stick's
			require.NoError(t, os.Symlink("/usr/share/firstlight/images/layers/0000/fs", at))
		case 3: // unpacked, as earlier versions did
			require.NoError(t, os.MkdirAll(at+"/usr/bin", 0o755))
		}
	}
	ctr := func(args ...string) { b.run("ctr", append([]string{"-n", "k8s.io"}, args...)...) }
	ctr("images", "tag", "firstlight.internal/pause:3.10.2", "firstlight.internal/pause:old")
	ctr("images", "label", "firstlight.internal/pause:old", "firstlight.dev/synced=true")
	ctr("images", "label", "firstlight.internal/etcd:v3.6.16", "firstlight.dev/synced=")
	ctr("images", "remove", "--sync", "firstlight.internal/coredns:v1.14.2")
	ctr("leases", "create", "--id", "firstlight-images")
	b.cut()
	b.power()
	b.ready()
	assert.ElementsMatch(t, names, b.names())
	again := b.links()
	assert.GreaterOrEqual(t, len(again), len(links))
	for at, to := range again {
		assert.DirExists(t, b.appliance.Path(to), at)
	}
	t.Log("\n" + b.run("kubectl", "get", "pods", "-A"))

	// What containerd collects is the link, never what it leads to.
	for _, name := range b.names() {
		if !strings.Contains(name, "pause") && strings.HasPrefix(name, "firstlight.internal/") {
			ctr("images", "remove", "--sync", name)
		}
	}
	for _, to := range links {
		entries, err := os.ReadDir(b.appliance.Path(to))
		require.NoError(t, err)
		assert.NotEmpty(t, entries, to)
	}
	b.run("systemctl", "restart", "firstlightd")
	b.ready()
	assert.ElementsMatch(t, names, b.names())
}
