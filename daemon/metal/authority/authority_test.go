package authority

import (
	"context"
	"errors"
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
	"firstlight.dev/firstlight/daemon/engine/remote"
	"firstlight.dev/firstlight/daemon/engine/remote/sshtest"
)

// rack is two nodes that trust the appliance, and one that never did.
type rack struct {
	t     *testing.T
	dir   string
	key   ssh.Signer
	nodes []*sshtest.Node

	away       map[int]bool // nodes that do not answer
	installing []string
	told       []string
	own        error
}

const trustFile = "etc/firstlight/ca.crt"

func newRack(t *testing.T) *rack {
	r := &rack{t: t, dir: t.TempDir(), key: sshtest.NewKey(t), away: map[int]bool{}}
	for i := range 3 {
		at := netip.AddrPortFrom(addressOf(i), 0)
		if i > 0 {
			at = netip.AddrPortFrom(addressOf(i), r.nodes[0].Port)
		}
		n := sshtest.NewAt(t, at.String())
		n.AuthorizeKey(r.key)
		r.nodes = append(r.nodes, n)
		if i < 2 {
			n.Put(trustFile, string(r.open().PEM()))
		}
	}
	return r
}

func addressOf(i int) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, byte(1 + i)}) }

func (r *rack) open() *ca.Authority {
	a, err := ca.Open(r.dir, time.Now)
	require.NoError(r.t, err)
	return a
}

// start is the daemon, which knows nothing but what is on DATA.
func (r *rack) start() *Rotation {
	a := r.open()
	return &Rotation{
		What:       "authority",
		Trust:      func() (Trust, error) { return a, nil },
		Introduce:  func() error { return a.Introduce("localhost") },
		File:       File,
		Earlier:    SystemFile,
		Installing: func() ([]string, error) { return r.installing, nil },
		Nodes: func() (all []remote.Installed, err error) {
			for i, n := range r.nodes {
				node := remote.Installed{Name: "node" + string(rune('1'+i)), Addresses: []netip.Addr{addressOf(i)}, HostKey: n.HostKey()}
				if r.away[i] {
					node.Addresses = []netip.Addr{netip.MustParseAddr("127.0.0.99")}
				}
				all = append(all, node)
			}
			return all, nil
		},
		LogIn:   func() (ssh.Signer, error) { return r.key, nil },
		Told:    func(context.Context, []byte, []byte) ([]string, error) { return r.told, nil },
		Own:     func(context.Context) error { return r.own },
		Changed: func() {},
		Root:    "$DIR",
		Port:    r.nodes[0].Port,
		Log:     slog.New(slog.DiscardHandler),
	}
}

// round is one round of a daemon that has just started, and the stage after it.
func (r *rack) round() (rotation *Rotation, stage ca.Stage) {
	r.t.Helper()
	rotation = r.start()
	require.NoError(r.t, rotation.Round(r.t.Context()))
	stage, _ = r.open().Stage()
	return rotation, stage
}

// trusts requires what the nodes that trust the appliance trust.
func (r *rack) trusts(pem []byte) {
	r.t.Helper()
	for _, n := range r.nodes[:2] {
		assert.Equal(r.t, strings.TrimSpace(string(pem)), n.Get(trustFile))
		left, err := filepath.Glob(filepath.Join(n.Dir, filepath.Dir(trustFile), "*"))
		require.NoError(r.t, err)
		assert.Len(r.t, left, 1, "something is left")
	}
	assert.Empty(r.t, r.nodes[2].Get(trustFile), "a node began to trust the appliance")
}

func TestEveryNodeTrustsBothBeforeTheNextOneSigns(t *testing.T) {
	r := newRack(t)
	old := r.open().PEM()
	_, stage := r.round()
	assert.Equal(t, ca.Stage(""), stage, "nobody has asked")

	require.NoError(t, r.open().BeginRotation())
	_, stage = r.round()
	assert.Equal(t, ca.Introduced, stage)
	r.trusts(old)
	both := r.open().PEM()

	_, stage = r.round()
	assert.Equal(t, ca.Switched, stage)
	r.trusts(both)
	assert.NotEqual(t, old, r.open().Current())

	rotation, stage := r.round()
	assert.Equal(t, ca.Stage(""), stage)
	r.trusts(r.open().Current())
	assert.Equal(t, r.open().Current(), r.open().PEM())
	require.NoError(t, rotation.Round(t.Context()))
	assert.Empty(t, rotation.Note())
}

// TestWhoIsNotThereYetIsWaitedFor at every stage, and is named.
func TestWhoIsNotThereYetIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		set, mend func(r *rack)
		want      string
		asked     bool // it is waited for from the beginning
	}{
		"a node does not answer": {
			func(r *rack) { r.away[1] = true }, func(r *rack) { r.away[1] = false }, "node2: log in to 127.0.0.99", false,
		},
		"a node is being installed": {
			func(r *rack) { r.installing = []string{"node9: it is provisioning"} }, func(r *rack) { r.installing = nil },
			"node9: it is provisioning", true,
		},
		"the appliance's own parts are not as they ought to be": {
			func(r *rack) { r.own = errors.New("ironic-ready: Ironic to answer") }, func(r *rack) { r.own = nil },
			"this appliance: ironic-ready: Ironic to answer", false,
		},
		"a node of an earlier version trusts by its system": {
			func(r *rack) { r.nodes[1].Put("usr/local/share/ca-certificates/firstlight.crt", "x") },
			func(r *rack) {
				require.NoError(r.t, os.Remove(filepath.Join(r.nodes[1].Dir, "usr/local/share/ca-certificates/firstlight.crt")))
			},
			"node2: its shell says: an earlier version installed it", false,
		},
		"the disk of a node is full": {
			func(r *rack) { r.nodes[0].PutProgram("mktemp", "echo no space left >&2; exit 1") },
			func(r *rack) { r.nodes[0].PutProgram("mktemp", `exec /usr/bin/mktemp "$@"`) }, "node1: its shell says: no space left", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRack(t)
			require.NoError(t, r.open().BeginRotation())
			for _, next := range []ca.Stage{ca.Introduced, ca.Switched, ""} {
				before, _ := r.open().Stage()
				if before != ca.Asked || c.asked {
					c.set(r)
					rotation, stage := r.round()
					assert.Equal(t, before, stage, "it was not waited for")
					assert.Contains(t, rotation.Note(), "; it is waited for 1: "+c.want)
					assert.Len(t, rotation.Blockers(), 1)
					c.mend(r)
				}
				_, stage := r.round()
				assert.Equal(t, next, stage)
			}
			r.trusts(r.open().Current())
		})
	}
}

// TestMachinesThatNobodyLogsInToAreWaitedFor before the next one signs: what they were told does not change.
func TestMachinesThatNobodyLogsInToAreWaitedFor(t *testing.T) {
	r := newRack(t)
	require.NoError(t, r.open().BeginRotation())
	r.told = []string{"edge/worker-1: replace the machine"}
	_, stage := r.round()
	assert.Equal(t, ca.Introduced, stage)
	rotation, stage := r.round()
	assert.Equal(t, ca.Introduced, stage)
	assert.Contains(t, rotation.Note(), "The next authority is there and signs nothing yet; it is waited for 1: edge/worker-1: replace")
	r.told = nil
	_, stage = r.round()
	assert.Equal(t, ca.Switched, stage)
}

// TestNodesAreNamedBeforeTheAppliance, which may wait for long: each that has not come to what is to be trusted, and those
// that answer have.
func TestNodesAreNamedBeforeTheAppliance(t *testing.T) {
	r := newRack(t)
	require.NoError(t, r.open().BeginRotation())
	r.round()
	r.away[1] = true
	r.told = []string{"edge/worker-1: replace the machine"}
	r.own = errors.New("cluster-api-ready: the stages before it")
	rotation, stage := r.round()
	assert.Equal(t, ca.Introduced, stage)
	assert.Regexp(t, "^The next authority is there and signs nothing yet; it is waited for 3: node2: log in to 127.0.0.99[^;]*; "+
		"edge/worker-1: replace the machine; this appliance: cluster-api-ready: the stages before it$", rotation.Note())
	assert.Equal(t, strings.TrimSpace(string(r.open().PEM())), r.nodes[0].Get(trustFile))
}

// TestANodeThatTrustsTheFormerAloneIsHealed: it was installed by what had begun before, however that came.
func TestANodeThatTrustsTheFormerAloneIsHealed(t *testing.T) {
	r := newRack(t)
	old := r.open().PEM()
	require.NoError(t, r.open().BeginRotation())
	r.round()
	r.round()
	r.nodes[0].Put(trustFile, string(old))
	rotation := r.start()
	rotation.Settle = time.Hour
	require.NoError(t, rotation.Round(t.Context()))
	stage, _ := r.open().Stage()
	assert.Equal(t, ca.Switched, stage, "the former is forgotten before its certificates are served no more")
	r.trusts(r.open().PEM())
	assert.Contains(t, rotation.Note(), "The next authority signs, and the former one is trusted still, until ")
}

func TestWhatCannotBeReadIsNoAnswer(t *testing.T) {
	r := newRack(t)
	require.NoError(t, r.open().BeginRotation())
	rotation := r.start()
	rotation.Installing = func() ([]string, error) { return nil, errors.New("the hosts are being read") }
	assert.ErrorContains(t, rotation.Round(t.Context()), "the hosts are being read")
	stage, _ := r.open().Stage()
	assert.Equal(t, ca.Asked, stage)
	assert.Contains(t, rotation.Note(), "Another authority is asked for; it is waited for 1: the hosts are being read")
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.NoError(t, newRack(t).start().Run(ctx))
}
