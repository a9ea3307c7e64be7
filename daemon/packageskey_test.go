package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/engine/remote"
	"firstlight.dev/firstlight/daemon/engine/remote/sshtest"
	"firstlight.dev/firstlight/daemon/metal/authority"
	"firstlight.dev/firstlight/daemon/metal/packages"
	"firstlight.dev/firstlight/daemon/metal/packages/apttest"
)

// packagesRack is nodes in service whose apt, which is this machine's, asks the repository of one appliance.
type packagesRack struct {
	t      *testing.T
	dir    string // has key and repository
	login  ssh.Signer
	nodes  []*sshtest.Node
	apt    []apttest.Client // of nodes
	away   map[int]bool
	others []string // clusters that are being changed
	told   string   // what a machine of Cluster API was told
	own    error
}

const packagesFile = "etc/firstlight/packages.asc"

func newPackagesRack(t *testing.T, nodes int) *packagesRack {
	r := &packagesRack{t: t, dir: t.TempDir(), login: sshtest.NewKey(t), away: map[int]bool{}}
	for range nodes {
		r.add(string(r.open().Public()))
	}
	return r
}

// add installs a node, which is told to trust something.
func (r *packagesRack) add(trusted string) {
	at := netip.AddrPortFrom(packagesAddr(len(r.nodes)), 0)
	if len(r.nodes) > 0 {
		at = netip.AddrPortFrom(at.Addr(), r.nodes[0].Port)
	}
	n := sshtest.NewAt(r.t, at.String())
	n.AuthorizeKey(r.login)
	if trusted != "" {
		n.Put(packagesFile, trusted)
	}
	r.nodes = append(r.nodes, n)
	r.apt = append(r.apt, apttest.New(r.t, filepath.Join(n.Dir, packagesFile), "copy:"+filepath.Join(r.dir, "debian"), packages.Suite))
}

func packagesAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, byte(31 + i)}) }

func (r *packagesRack) open() *packages.Key {
	key, err := packages.OpenKey(filepath.Join(r.dir, "packages.key"))
	require.NoError(r.t, err)
	return key
}

// round is one round of a daemon that has just started and knows nothing but what is on DATA. Before and after it, and
// when its index is written, apt of each node that trusts the appliance takes what is served.
func (r *packagesRack) round() (rotation *authority.Rotation, stage ca.Stage) {
	r.t.Helper()
	rotation = New(slog.New(slog.DiscardHandler)).newPackagesRotation(vault.New(nil))
	rotation.Trust = func() (authority.Trust, error) { return packagesKey{r.open()}, nil }
	rotation.Installing = func() ([]string, error) { return r.others, nil }
	rotation.Nodes = func() (all []remote.Installed, err error) {
		for i, n := range r.nodes {
			node := remote.Installed{Name: fmt.Sprintf("node-%d", i+1), Addresses: []netip.Addr{packagesAddr(i)}, HostKey: n.HostKey()}
			if r.away[i] {
				node.Addresses = []netip.Addr{netip.MustParseAddr("127.0.0.99")}
			}
			all = append(all, node)
		}
		return all, nil
	}
	rotation.LogIn = func() (ssh.Signer, error) { return r.login, nil }
	rotation.Told = func(_ context.Context, trusted, next []byte) ([]string, error) {
		if packages.HasKey([]byte(r.told), trusted) && !packages.HasKey([]byte(r.told), next) {
			return []string{"edge/worker-1: replace the machine"}, nil
		}
		return nil, nil
	}
	rotation.Own = func(context.Context) error { return r.own }
	rotation.Changed = func() {}
	rotation.Settle = 0
	rotation.Root, rotation.Port = "$DIR", r.nodes[0].Port

	r.update()
	require.NoError(r.t, rotation.Round(r.t.Context()))
	r.update()
	index := packages.Repository{Dir: filepath.Join(r.dir, "debian"), Key: r.open(), Now: time.Now}
	_, err := index.Write(r.t.Context())
	require.NoError(r.t, err)
	r.update()
	stage, _ = r.open().Stage()
	return rotation, stage
}

// update has the apt of each node ask the repository.
func (r *packagesRack) update() {
	r.t.Helper()
	if _, err := os.Stat(filepath.Join(r.dir, "debian")); errors.Is(err, os.ErrNotExist) {
		return
	}
	for i, n := range r.nodes {
		if n.Get(packagesFile) == "" {
			continue
		}
		out, err := r.apt[i].Run("apt-get", "update")
		require.NoError(r.t, err, out)
		require.NotRegexp(r.t, "(?m)^(W|E|Err):", out, n.Addr)
	}
}

// TestNodesInServiceFollowTheKeyOfPackages: apt of no node refuses what is served at any time, who is not there is waited
// for by name, and who is installed meanwhile has both.
func TestNodesInServiceFollowTheKeyOfPackages(t *testing.T) {
	r := newPackagesRack(t, 2)
	r.add("") // it never trusted the appliance
	_, stage := r.round()
	assert.Equal(t, ca.Stage(""), stage, "nobody has asked")
	old := r.open().Public()
	r.told = string(old)
	require.NoError(t, r.open().BeginRotation())

	waits := func(whom string, want ca.Stage) {
		t.Helper()
		rotation, stage := r.round()
		assert.Equal(t, want, stage, "it was not waited for %s", whom)
		assert.Contains(t, rotation.Note(), "; it is waited for 1: "+whom)
	}
	r.away[1] = true
	r.told = ""
	waits("node-2: log in to 127.0.0.99", ca.Introduced)
	assert.Equal(t, strings.TrimSpace(string(r.open().Public())), r.nodes[0].Get(packagesFile), "a node waits for another one")
	r.away[1] = false
	r.others = []string{"cluster edge: it is Installing"}
	waits("cluster edge: it is Installing", ca.Introduced)
	r.add(string(r.open().Public()))
	r.others, r.told = nil, string(old)
	waits("edge/worker-1: replace the machine", ca.Introduced)
	r.told = string(r.open().Public())
	r.own = errors.New("supplies-served: the index")
	waits("this appliance: supplies-served: the index", ca.Introduced)
	r.own = nil
	both := strings.TrimSpace(string(r.open().Public()))
	rotation, stage := r.round()
	assert.Equal(t, ca.Switched, stage)
	assert.Contains(t, rotation.Note(), "The next key of packages is there and signs nothing yet")
	for _, i := range []int{0, 1, 3} {
		trusted := r.nodes[i].Get(packagesFile)
		assert.True(t, packages.HasKey([]byte(trusted), old), "node %d", i+1)
		assert.True(t, packages.HasKey([]byte(trusted), r.open().Current()), "node %d", i+1)
	}
	assert.Equal(t, both, r.nodes[0].Get(packagesFile))

	r.away[0] = true
	waits("node-1: log in to 127.0.0.99", ca.Switched)
	r.away[0] = false
	_, stage = r.round()
	assert.Equal(t, ca.Stage(""), stage)
	_, stage = r.round()
	assert.Equal(t, ca.Stage(""), stage)
	assert.NotEqual(t, old, r.open().Public())
	for _, i := range []int{0, 1, 3} {
		assert.Equal(t, strings.TrimSpace(string(r.open().Public())), r.nodes[i].Get(packagesFile), "node %d", i+1)
	}
	assert.Empty(t, r.nodes[2].Get(packagesFile), "a node began to trust the appliance")
}
