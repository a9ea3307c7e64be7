package scenario_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/engine/remote/sshtest"
	"firstlight.dev/firstlight/daemon/metal/mirror"
	"firstlight.dev/firstlight/daemon/metal/netboot"
	"firstlight.dev/firstlight/daemon/metal/packages"
	"firstlight.dev/firstlight/daemon/metal/packages/apttest"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

const packagesFile = "etc/firstlight/packages.asc" // on a node; its apt reads it at each update

// aptComplaint is of what apt says when it does not take an index, whatever its exit status is.
var aptComplaint = regexp.MustCompile(`(?m)^(W|E|Err):`)

// rotatePackages kills the daemon in each step: when the first node trusts two keys, when the next one signs, and when
// the first node trusts that one alone. apt of every node asks the repository meanwhile, except while no daemon runs.
// A stage lasts until the file on DATA that its minutes are counted from is dated back.
func (r *rackInService) rotatePackages(ctx context.Context) {
	r.t.Helper()
	former := r.packagesKey().Current()
	for _, n := range r.shells {
		n.Put(packagesFile, string(former))
	}
	updates := r.startUpdates()
	restart := func() {
		r.t.Helper()
		updates.Lock()
		r.restartDaemon(ctx)
		updates.Unlock()
		asked := updates.asked.Load()
		r.await("apt of a node asks", func() bool { return updates.asked.Load() > asked })
	}

	r.t.Log(run(r.t, ctx, r.d, "firstlightd", "rotate", "packages"))
	r.datePackagesKey(".next", time.Hour)
	next := r.packagesKey().Next()
	require.NotEmpty(r.t, next)
	r.await("a node trusts both keys of packages", func() bool { return r.countTrustingKeys(former, next) > 0 })
	restart()
	r.awaitNote(ctx, "The next key of packages is there and signs nothing yet, until ")
	assert.Equal(r.t, former, r.packagesKey().Current(), "the next key signs before its time")
	assert.Equal(r.t, len(r.shells), r.countTrustingKeys(former, next), "not every node trusts both")

	r.datePackagesKey(".next", -time.Hour)
	r.await("the next key of packages signs", func() bool { return string(r.packagesKey().Current()) == string(next) })
	r.datePackagesKey(".former", time.Hour)
	restart()
	r.awaitNote(ctx, "The next key of packages signs, and the former one is trusted still, until ")
	assert.Equal(r.t, len(r.shells), r.countTrustingKeys(former, next), "the former is taken from a node before its time")

	r.datePackagesKey(".former", -time.Hour)
	r.await("a node trusts the next key of packages alone", func() bool { return r.countTrustingOnly(next) > 0 })
	restart()
	r.await("the former key of packages is forgotten", func() bool {
		stage, _ := r.packagesKey().Stage()
		return stage == ca.Stage("")
	})
	assert.Equal(r.t, len(r.shells), r.countTrustingOnly(next), "not every node trusts the next key alone")
	updates.end()
	r.checkPackages(former)
	r.checkNothingWaits(ctx)
}

// packagesKey is the key of packages as it is on DATA.
func (r *rackInService) packagesKey() *packages.Key {
	r.t.Helper()
	key, err := packages.OpenKey(r.d.Sandbox.DataPath(mirror.PackagesKey))
	require.NoError(r.t, err)
	return key
}

// datePackagesKey says that a stage of the rotation began some time from now.
func (r *rackInService) datePackagesKey(suffix string, from time.Duration) {
	r.t.Helper()
	began := time.Now().Add(from)
	require.NoError(r.t, os.Chtimes(r.d.Sandbox.DataPath(mirror.PackagesKey)+suffix, began, began))
}

// countTrustingKeys counts nodes that trust all of these keys.
func (r *rackInService) countTrustingKeys(keys ...[]byte) (nodes int) {
	for _, n := range r.shells {
		trusted := 0
		for _, key := range keys {
			if packages.HasKey([]byte(n.Get(packagesFile)), key) {
				trusted++
			}
		}
		if trusted == len(keys) {
			nodes++
		}
	}
	return nodes
}

// countTrustingOnly counts nodes that trust one key and no other.
func (r *rackInService) countTrustingOnly(key []byte) (nodes int) {
	for _, n := range r.shells {
		if n.Get(packagesFile) == strings.TrimSpace(string(key)) {
			nodes++
		}
	}
	return nodes
}

// newApt is the apt of a node, which trusts what is in a file: it asks from the node's own address.
func (r *rackInService) newApt(n *sshtest.Node, trusted string) apttest.Client {
	appliance := &url.URL{Scheme: "http", Host: fmt.Sprintf("%s:%d", scenario.Address, netboot.HTTPPort)}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(request *httputil.ProxyRequest) { request.SetURL(appliance) },
		Transport: r.newTransport(n, nil),
	})
	r.t.Cleanup(proxy.Close)
	return apttest.New(r.t, trusted, proxy.URL+"/debian", packages.Suite)
}

// updates are what apt of nodes asks meanwhile; nobody asks while it is locked.
type updates struct {
	sync.Mutex
	asked atomic.Int64
	end   func() // not one may have complained
}

// startUpdates has apt of one node after the other read the index, by what the node's file names then.
func (r *rackInService) startUpdates() *updates {
	r.t.Helper()
	nodes := map[string]apttest.Client{}
	for name, n := range r.shells {
		nodes[name] = r.newApt(n, filepath.Join(n.Dir, packagesFile))
	}

	u := &updates{}
	stop, ended := make(chan struct{}), make(chan struct{})
	complained := 0
	go func() {
		defer close(ended)
		for {
			for name, apt := range nodes {
				select {
				case <-stop:
					return
				case <-time.After(time.Second):
				}

				u.Lock()
				said, err := apt.Run("apt-get", "update")
				u.Unlock()
				u.asked.Add(1)
				if err != nil || aptComplaint.MatchString(said) {
					complained++
					r.t.Logf("apt of %s complains: %v\n%s", name, err, said)
				}
			}
		}
	}()
	u.end = func() {
		r.t.Helper()
		close(stop)
		<-ended
		r.t.Logf("apt of nodes read the index %d times and complained %d times", u.asked.Load(), complained)
		assert.Zero(r.t, complained)
	}
	return u
}

// checkPackages has an apt of each node that never saw the repository read its index and fetch a package, by what the
// node trusts. One that trusts the former key is refused.
func (r *rackInService) checkPackages(former []byte) {
	r.t.Helper()
	for name, n := range r.shells {
		apt := r.newApt(n, filepath.Join(n.Dir, packagesFile))
		for _, args := range [][]string{{"update"}, {"download", "conntrack"}} {
			said, err := apt.Run("apt-get", args...)
			assert.NoError(r.t, err, "%s: %s", name, said)
			assert.NotRegexp(r.t, aptComplaint, said, name)
		}
	}

	file := filepath.Join(r.t.TempDir(), "packages.asc")
	require.NoError(r.t, os.WriteFile(file, former, 0o644))
	said, _ := r.newApt(r.shells[r.d.Servers.Hosts()[0].Name], file).Run("apt-get", "update")
	assert.Contains(r.t, said, "NO_PUBKEY", "the former key still signs")
}
