package bmcpassword

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/metal/bmctrust"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
	"firstlight.dev/firstlight/image/lab/simulator"
)

const usual = "secret-of-bmc"

// rack is a site with BMCs, and the Secrets that Ironic is given.
type rack struct {
	t       *testing.T
	dir     string              // DATA
	servers []*simulator.Server // whose BMCs the site names; nil: they are others
	log     bytes.Buffer
	power   power

	mu      sync.Mutex
	site    site.Site
	secrets map[string]string // by node
	busy    map[string]string // by node
	now     time.Time
	refused []time.Time // logins since the last replacement was asked for
}

// newRack is a rack of n simulated servers.
func newRack(t *testing.T, n int) *rack {
	f, err := simulator.Start(simulator.Config{Hosts: n})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.Close()) })
	r := emptyRack(t)
	r.servers = f.Hosts()
	for _, s := range r.servers {
		r.addNode(s.Name, s.BMC())
	}
	r.handOver(r.start())
	return r
}

func emptyRack(t *testing.T) *rack {
	return &rack{t: t, dir: t.TempDir(), secrets: map[string]string{}, busy: map[string]string{}, now: time.Now()}
}

// addNode names a node in the site.
func (r *rack) addNode(name, address string) {
	r.site.Nodes = append(r.site.Nodes, site.Node{Name: site.Name(name), BMC: &site.BMC{
		Address:           site.BMCAddress(address),
		Username:          "admin",
		Password:          site.NewSecret(usual),
		VerifyCertificate: site.CheckPin,
	}})
}

// client asks BMCs.
func (r *rack) client() bmc.Client {
	return bmc.Client{Pins: &bmctrust.Pins{Dir: filepath.Join(r.dir, "pins"), Log: slog.New(slog.DiscardHandler)}}
}

// accounts are those on DATA.
func (r *rack) accounts() *vault.BMCAccounts {
	return &vault.BMCAccounts{Dir: filepath.Join(r.dir, "bmc")}
}

// start is the daemon, which knows nothing but what is on DATA.
func (r *rack) start() *Rotation {
	return &Rotation{
		Accounts: written{r, r.accounts()},
		BMC:      asked{r, r.client()},
		Named:    func() *site.Site { return &r.site },
		Busy:     func(node string) string { return r.busy[node] },
		Given: func(_ context.Context, node string) (string, bool, error) {
			r.power.spend()
			r.mu.Lock()
			defer r.mu.Unlock()
			password, found := r.secrets[node]
			return password, found, nil
		},
		Changed: r.power.spend,
		Now:     func() time.Time { return r.now },
		Log:     slog.New(slog.NewTextHandler(&r.log, nil)),
	}
}

// handOver makes the Secrets of all nodes.
func (r *rack) handOver(rotation *Rotation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range rotation.Site(&r.site).Nodes {
		r.secrets[string(n.Name)] = n.BMC.Password.Reveal()
	}
}

// round is one of the rotation, and of the hand-over. Without power nothing is done.
func (r *rack) round(rotation *Rotation) {
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	if r.power.connect(cancel) {
		rotation.Round(ctx)
	}
	if r.power.isOn() {
		r.handOver(rotation)
		r.power.pass()
	}
}

// finish works until nothing is to be done, for a few hours at most, and checks that all have the same password.
func (r *rack) finish(rotation *Rotation) {
	r.t.Helper()
	for range 12 {
		r.round(rotation)
		r.now = r.now.Add(20 * time.Minute)
	}

	assert.Empty(r.t, rotation.Notes())
	for i, n := range r.site.Nodes {
		kept := r.kept(i)
		b := *n.BMC
		assert.NotEqual(r.t, b.Password.Reveal(), kept.Present, n.Name)
		b.Password = site.NewSecret(kept.Present)
		answer := r.client().Login(r.t.Context(), b)
		assert.Equal(r.t, bmc.OK, answer.Verdict, "%s: %s", n.Name, answer.Text)
		assert.Equal(r.t, kept.Present, r.secrets[string(n.Name)], n.Name)
		assert.Empty(r.t, kept.Next+kept.Former+kept.Refusal, n.Name)
		assert.Empty(r.t, kept.Tries, n.Name)
	}
	r.checkSecrecy()
}

// kept is what DATA has of the account of a node's BMC; zero: nothing.
func (r *rack) kept(i int) vault.BMCAccount {
	r.t.Helper()
	a := listAccounts(r.site.Nodes[i : i+1])[0]
	kept, _, err := r.accounts().Lookup(a.host, a.bmc.Username)
	require.NoError(r.t, err)
	return kept
}

// checkSecrecy: no password is in the log, and what is on DATA is root's alone.
func (r *rack) checkSecrecy() {
	for i, n := range r.site.Nodes {
		assert.NotContains(r.t, r.log.String(), r.kept(i).Present)
		assert.NotContains(r.t, r.log.String(), n.BMC.Password.Reveal())
	}
	files, err := filepath.Glob(filepath.Join(r.dir, "bmc", "*"))
	require.NoError(r.t, err)
	for _, file := range files {
		info, err := os.Stat(file)
		require.NoError(r.t, err)
		assert.Equal(r.t, os.FileMode(0o600), info.Mode().Perm())
		text, err := os.ReadFile(file)
		require.NoError(r.t, err)
		for _, n := range r.site.Nodes {
			assert.NotContains(r.t, string(text), n.BMC.Password.Reveal(), "what the site says is on DATA as a digest alone")
		}
	}
}
