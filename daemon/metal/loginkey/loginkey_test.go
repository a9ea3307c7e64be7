package loginkey

import (
	"context"
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

	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/engine/remote"
	"firstlight.dev/firstlight/daemon/engine/remote/sshtest"
)

const theirs = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHVuY2hhbmdlZHVuY2hhbmdlZHVuY2hhbmdlZHVuY2hh someone"

// rack is nodes that let the appliance in as root and as their own user, among others.
type rack struct {
	t     *testing.T
	keys  *vault.Keys
	nodes []*sshtest.Node
	away  map[int]bool // they do not answer
}

func newRack(t *testing.T, addresses ...string) *rack {
	r := &rack{t: t, keys: &vault.Keys{Dir: filepath.Join(t.TempDir(), "ssh")}, away: map[int]bool{}}
	port := uint16(0)
	for _, address := range addresses {
		var n *sshtest.Node
		if port == 0 {
			n = sshtest.NewAt(t, address+":0")
			port = n.Port
		} else {
			n = sshtest.NewAt(t, netip.AddrPortFrom(netip.MustParseAddr(address), port).String())
		}
		n.PutProgram("getent", `echo root:x:0:0::$DIR/root:/bin/sh; echo firstlight:x:1000:1000::$DIR/home/firstlight:/bin/sh; echo other:x:1001:1001::$DIR/home/other:/bin/sh`)
		r.nodes = append(r.nodes, n)
		r.install(n)
	}
	return r
}

// install gives a node the key that the appliance has now.
func (r *rack) install(n *sshtest.Node) {
	pair, err := r.keys.Pair()
	require.NoError(r.t, err)
	n.Put("root/.ssh/authorized_keys", pair.Public+"\n"+theirs) // without an end of line
	n.Put("home/firstlight/.ssh/authorized_keys", theirs+"\n"+pair.Public+"\n")
	n.Put("home/other/.ssh/authorized_keys", theirs+"\n")
}

// start is the daemon, which knows nothing but what is on DATA.
func (r *rack) start() *Rotation {
	r.keys = &vault.Keys{Dir: r.keys.Dir}
	return &Rotation{Keys: r.keys, Log: slog.New(slog.DiscardHandler), Port: r.nodes[0].Port, Nodes: func() (all []remote.Installed, err error) {
		for i, n := range r.nodes {
			node := remote.Installed{Name: "node" + string(rune('1'+i)), Addresses: []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, byte(1 + i)})}, HostKey: n.HostKey()}
			if r.away[i] {
				node.Addresses = []netip.Addr{netip.MustParseAddr("127.0.0.99")}
			}
			all = append(all, node)
		}
		return all, nil
	}}
}

// opens reports whether a key is let in at a node by each of those who had one.
func (r *rack) opens(i int, key ssh.Signer) bool {
	r.t.Helper()
	user := strings.Contains(r.nodes[i].Get("home/firstlight/.ssh/authorized_keys"), blob(key))
	shell := remote.Shell{Signer: key, Port: r.nodes[0].Port}
	_, _, err := shell.Run(r.t.Context(), netip.AddrFrom4([4]byte{127, 0, 0, byte(1 + i)}), r.nodes[i].HostKey(), "true\n")
	assert.Equal(r.t, user, err == nil, "root and user of node %d differ", i+1)
	return err == nil
}

func (r *rack) current() ssh.Signer {
	key, err := r.keys.AccessSigner()
	require.NoError(r.t, err)
	return key
}

// finish goes on until the rotation is at its end, and checks that the old key opens nothing.
func (r *rack) finish(old ssh.Signer) {
	r.t.Helper()
	rotation := r.start()
	for range 4 {
		require.NoError(r.t, rotation.Round(r.t.Context()))
	}
	assert.Empty(r.t, rotation.Note())
	now := r.current()
	assert.NotEqual(r.t, blob(old), blob(now))
	for i, n := range r.nodes {
		assert.True(r.t, r.opens(i, now), "node %d", i+1)
		assert.False(r.t, r.opens(i, old), "node %d", i+1)
		assert.Contains(r.t, n.Get("root/.ssh/authorized_keys"), theirs)
		assert.Equal(r.t, theirs, n.Get("home/other/.ssh/authorized_keys"))
		left, err := filepath.Glob(filepath.Join(n.Dir, "root/.ssh/*"))
		require.NoError(r.t, err)
		assert.Len(r.t, left, 1, "something is left")
	}
	signers, err := r.keys.Signers()
	require.NoError(r.t, err)
	assert.Len(r.t, signers, 1)
	assert.NoError(r.t, r.keys.BeginRotation(), "another cannot begin")
}

func TestTheLogInIsReplacedOnEveryNode(t *testing.T) {
	r := newRack(t, "127.0.0.1", "127.0.0.2", "127.0.0.3")
	old := r.current()
	require.NoError(t, r.start().Round(t.Context()), "nobody has asked")
	assert.Equal(t, blob(old), blob(r.current()))
	require.NoError(t, r.keys.BeginRotation())
	assert.ErrorIs(t, r.keys.BeginRotation(), vault.ErrRotating)
	r.finish(old)
}

// TestANodeThatDoesNotAnswerIsWaitedFor: both keys let the appliance in meanwhile, wherever they did.
func TestANodeThatDoesNotAnswerIsWaitedFor(t *testing.T) {
	r := newRack(t, "127.0.0.1", "127.0.0.2")
	old := r.current()
	r.away[1] = true
	require.NoError(t, r.keys.BeginRotation())
	rotation := r.start()
	require.NoError(t, rotation.Round(t.Context()))
	assert.Contains(t, rotation.Note(), "The next log-in to nodes is not on every node; it is waited for 1: node2: log in to 127.0.0.99")
	assert.Equal(t, blob(old), blob(r.current()), "it was switched although a node has it not")
	assert.True(t, r.opens(0, old) && r.opens(1, old))

	// It has answered, and is away when the former key is to be taken.
	r.away[1] = false
	bring, err := r.keys.Next()
	require.NoError(t, err)
	require.NoError(t, rotation.admit(t.Context(), bring))
	require.NoError(t, r.keys.Switch())
	r.away[1] = true
	require.NoError(t, rotation.Round(t.Context()))
	assert.Contains(t, rotation.Note(), "The former log-in to nodes still lets in where; it is waited for 1: node2")
	assert.True(t, r.opens(1, r.current()))
	assert.ErrorIs(t, r.keys.BeginRotation(), vault.ErrRotating)
	r.away[1] = false
	r.finish(old)
}

// TestANodeThatIsBeingInstalledIsWaitedFor: its system may let in the former key alone.
func TestANodeThatIsBeingInstalledIsWaitedFor(t *testing.T) {
	r := newRack(t, "127.0.0.1")
	old := r.current()
	require.NoError(t, r.keys.BeginRotation())
	rotation := r.start()
	nodes := rotation.Nodes
	rotation.Nodes = func() ([]remote.Installed, error) {
		all, err := nodes()
		return append(all, remote.Installed{Name: "node9", Busy: "it is being installed"}), err
	}
	require.NoError(t, rotation.Round(t.Context()))
	assert.Contains(t, rotation.Note(), "it is waited for 1: node9: it is being installed")
	assert.Equal(t, blob(old), blob(r.current()))

	rotation.Nodes, rotation.Settle = nodes, time.Hour
	require.NoError(t, rotation.Round(t.Context()))
	former, err := r.keys.Former()
	require.NoError(t, err)
	assert.NotNil(t, former, "it is forgotten before what was being installed can have shown itself")
	r.finish(old)
}

// TestThePowerFailsInARotation at each of its steps.
func TestThePowerFailsInARotation(t *testing.T) {
	for name, cut := range map[string]func(r *rack, old ssh.Signer){
		"nothing was brought": func(*rack, ssh.Signer) {},
		"one node has it": func(r *rack, _ ssh.Signer) {
			r.away[1] = true
			require.NoError(r.t, r.start().Round(r.t.Context()))
			r.away[1] = false
		},
		"root of a node has it, and its user not": func(r *rack, old ssh.Signer) {
			next, err := r.keys.Next()
			require.NoError(r.t, err)
			r.nodes[0].Put("root/.ssh/authorized_keys", line(old)+"\n"+theirs+"\n"+line(next)+"\n")
		},
		"all have it": func(r *rack, _ ssh.Signer) {
			next, err := r.keys.Next()
			require.NoError(r.t, err)
			require.NoError(r.t, r.start().admit(r.t.Context(), next))
		},
		"the former is written, the next not in use": func(r *rack, old ssh.Signer) {
			text, err := os.ReadFile(r.keys.AccessFile())
			require.NoError(r.t, err)
			require.NoError(r.t, os.WriteFile(r.keys.AccessFile()+".former", text, 0o600))
		},
		"the next is in use, and is still the next": func(r *rack, _ ssh.Signer) {
			next, err := r.keys.Next()
			require.NoError(r.t, err)
			require.NoError(r.t, r.start().admit(r.t.Context(), next))
			text, err := os.ReadFile(r.keys.AccessFile() + ".next")
			require.NoError(r.t, err)
			require.NoError(r.t, r.keys.Switch())
			require.NoError(r.t, os.WriteFile(r.keys.AccessFile()+".next", text, 0o600))
		},
		"the former is taken from one node": func(r *rack, old ssh.Signer) {
			next, err := r.keys.Next()
			require.NoError(r.t, err)
			require.NoError(r.t, r.start().admit(r.t.Context(), next))
			require.NoError(r.t, r.keys.Switch())
			r.away[1] = true
			require.NoError(r.t, r.start().Round(r.t.Context()))
			r.away[1] = false
		},
		"a node was installed with the former meanwhile": func(r *rack, old ssh.Signer) {
			next, err := r.keys.Next()
			require.NoError(r.t, err)
			require.NoError(r.t, r.start().admit(r.t.Context(), next))
			require.NoError(r.t, r.keys.Switch())
			r.nodes[1].Put("root/.ssh/authorized_keys", line(old)+"\n"+theirs+"\n")
			r.nodes[1].Put("home/firstlight/.ssh/authorized_keys", line(old)+"\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRack(t, "127.0.0.1", "127.0.0.2")
			old := r.current()
			require.NoError(t, r.keys.BeginRotation())
			cut(r, old)
			r.finish(old)
		})
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.NoError(t, newRack(t, "127.0.0.1").start().Run(ctx))
}
