package nodes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/metal/packages"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox/nodes"
)

// repositoryOnNode is a repository that is written here, and asked by the apt of a server.
type repositoryOnNode struct {
	*bench
	node *nodes.Server
	dir  string // here
	file string // of its key
}

// publish writes the index by the key as it is now, and brings it to the server.
func (r *repositoryOnNode) publish() *packages.Key {
	r.t.Helper()
	key, err := packages.OpenKey(r.file)
	require.NoError(r.t, err)
	written := packages.Repository{Dir: r.dir, Key: key, Now: time.Now}
	_, err = written.Write(r.ctx)
	require.NoError(r.t, err)
	for _, name := range []string{"dists/firstlight/InRelease", "dists/firstlight/main/binary-amd64/Packages"} {
		text, err := os.ReadFile(filepath.Join(r.dir, name))
		require.NoError(r.t, err)
		require.NoError(r.t, r.node.WriteFile("/srv/debian/"+name, text, 0o644))
	}
	return key
}

// update returns what the server's apt says to it by what it trusts.
func (r *repositoryOnNode) update(trusted []byte) string {
	r.t.Helper()
	require.NoError(r.t, r.node.WriteFile("/etc/firstlight/packages.asc", trusted, 0o644))
	return r.on(r.node, "LC_ALL=C apt-get -o Dir::Etc::sourcelist=/etc/apt/sources.list.d/firstlight.sources -o Dir::Etc::sourceparts=- update 2>&1 || true")
}

// TestAptOfNodesNoticesNoRotation: the apt of the nodes' system checks by another program than that of Debian 12. It takes
// the index at every stage, by what a node trusts before it is told of the stage, and after.
func TestAptOfNodesNoticesNoRotation(t *testing.T) {
	b := newBench(t, "aptkey", 1)
	r := &repositoryOnNode{b, b.Servers[0], t.TempDir(), filepath.Join(t.TempDir(), "packages.key")}
	require.NoError(t, r.node.WriteFile("/etc/apt/sources.list.d/firstlight.sources", []byte("Types: deb\nURIs: file:/srv/debian\n"+
		"Suites: firstlight\nComponents: main\nSigned-By: /etc/firstlight/packages.asc\nCheck-Date: no\n"), 0o644))
	t.Log(b.on(r.node, "apt-get --version | head -n 1; ls /usr/bin/gpgv /usr/bin/sqv 2>/dev/null || true"))

	takes := func(trusted ...[]byte) {
		t.Helper()
		for _, text := range trusted {
			said := r.update(text)
			t.Log(strings.TrimSpace(said))
			assert.NotRegexp(t, "(?m)^(W|E|Err):", said)
		}
	}
	key := r.publish()
	old := key.Public()
	takes(old)
	require.NoError(t, key.BeginRotation())
	key = r.publish()
	stage, _ := key.Stage()
	require.Equal(t, ca.Introduced, stage)
	both := key.Public()
	takes(old, both)

	require.NoError(t, key.Switch())
	key = r.publish()
	takes(both, key.Public())
	assert.Regexp(t, "(?m)^(W|E|Err):", r.update(old), "the next key signs nothing")
	require.NoError(t, key.ForgetFormer())
	key = r.publish()
	takes(both, key.Public())
	assert.NotEqual(t, old, key.Public())
}
