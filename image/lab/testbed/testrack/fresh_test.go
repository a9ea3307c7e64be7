package testrack_test

import (
	"crypto/sha256"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/testrack"
)

// TestAFreshStickLeavesARealServerAlone: a server that the site gave up once (overwrite: true) runs its system. It goes
// on running when the appliance comes back from a new stick with the same site, and when it comes back with a torn
// record and without databases. It is held with the reason, and adopt takes it back.
func TestAFreshStickLeavesARealServerAlone(t *testing.T) {
	need(t, "rack-all")
	r := newRoom(t, 90*time.Minute, "legacy")
	r.nodes[0].extra = "    overwrite: true\n"
	box := r.node1("")
	r.power()
	r.installed(box)
	r.bootID() // its system runs, and lets the appliance in

	for _, c := range []struct {
		name string
		lose func()
		says string
	}{
		{"a fresh stick", func() {
			for _, dir := range sandbox.DataDirs() {
				require.NoError(t, os.RemoveAll(r.appliance.DataPath(dir)))
			}
		}, "it runs, and this appliance has no record of it"},
		{"a torn record", func() {
			require.NoError(t, os.RemoveAll(r.appliance.DataPath("/var/lib/etcd")))
			require.NoError(t, os.RemoveAll(r.appliance.DataPath("/var/lib/ironic")))
			require.NoError(t, os.Truncate(filepath.Join(r.appliance.DataPath("/var/lib/firstlight/hosts"), "node1.json"), 99))
		}, "its record on DATA cannot be read"},
	} {
		told, head, began := box.BMC().Writes(), headOf(t, box), len(box.Console())
		r.cut()
		c.lose()
		r.power()
		r.until("why of node1", func() string { return r.run("firstlightd", "why", "node1") },
			func(s string) bool { return strings.Contains(s, c.says) })
		time.Sleep(2 * time.Minute) // four rounds of what the appliance does without being asked
		assert.Contains(t, r.run("firstlightd", "why", "node1"), c.says)

		t.Log(r.run("firstlightd", "adopt", "node1"))
		r.served()
		assert.Equal(t, told, box.BMC().Writes(), "%s: the BMC was told something", c.name)
		assert.Equal(t, head, headOf(t, box), "%s: its partitions have changed", c.name)
		assert.NotContains(t, box.Console()[began:], "iPXE", "%s: it was booted", c.name)
		assert.True(t, box.IsOn())
	}
}

// headOf is the sha256 of the first MiB of a server's disk, which a running system leaves alone: boot sector and
// partitions.
func headOf(t *testing.T, box *testrack.Server) [sha256.Size]byte {
	t.Helper()
	f, err := os.Open(box.DiskFile())
	require.NoError(t, err)
	defer f.Close()
	head := make([]byte, 1<<20)
	_, err = io.ReadFull(f, head)
	require.NoError(t, err)
	return sha256.Sum256(head)
}
