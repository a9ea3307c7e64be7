package bmcpassword

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
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

// rack is a site whose BMCs are the simulator's, and the Secrets that Ironic is given.
type rack struct {
	t       *testing.T
	dir     string // DATA
	servers []*simulator.Server
	log     bytes.Buffer

	mu      sync.Mutex
	site    site.Site
	secrets map[string]string // by node
	busy    map[string]string // by node
	now     time.Time
	cutAt   int // the event at which the power fails; 0: it does not
	events  int
}

func newRack(t *testing.T, n int) *rack {
	f, err := simulator.Start(simulator.Config{Hosts: n})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.Close()) })
	r := &rack{t: t, dir: t.TempDir(), servers: f.Hosts(), secrets: map[string]string{}, busy: map[string]string{}, now: time.Now()}
	for _, s := range r.servers {
		r.site.Nodes = append(r.site.Nodes, site.Node{Name: site.Name(s.Name), BMC: &site.BMC{
			Address:           site.BMCAddress(s.BMC()),
			Username:          "admin",
			Password:          site.NewSecret(usual),
			VerifyCertificate: site.CheckPin,
		}})
	}
	r.handOver(r.start())
	return r
}

// event is a moment at which the power may fail: what the daemon did is on DATA, and it does no more.
func (r *rack) event() {
	r.mu.Lock()
	r.events++
	isCut := r.events == r.cutAt
	r.mu.Unlock()
	if isCut {
		runtime.Goexit()
	}
}

// asked is the BMCs, with the moments before and after each conversation.
type asked struct {
	*rack
	bmc.Client
}

func (a asked) Login(ctx context.Context, b site.BMC) bmc.Answer {
	a.event()
	defer a.event()
	return a.Client.Login(ctx, b)
}

func (a asked) ChangePassword(ctx context.Context, b site.BMC, next site.Secret) bmc.Answer {
	a.event()
	defer a.event()
	return a.Client.ChangePassword(ctx, b, next)
}

// start is the daemon, which knows nothing but what is on DATA.
func (r *rack) start() *Rotation {
	log := slog.New(slog.NewTextHandler(&r.log, nil))
	return &Rotation{
		Accounts: &vault.BMCAccounts{Dir: filepath.Join(r.dir, "bmc")},
		BMC:      asked{r, bmc.Client{Pins: &bmctrust.Pins{Dir: filepath.Join(r.dir, "pins"), Log: slog.New(slog.DiscardHandler)}}},
		Named:    func() *site.Site { return &r.site },
		Busy:     func(node string) string { return r.busy[node] },
		Given: func(_ context.Context, node string) (string, bool, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			password, found := r.secrets[node]
			return password, found, nil
		},
		Changed: func() { r.event() },
		Now:     func() time.Time { return r.now },
		Log:     log,
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

// round is one of the rotation, and of the hand-over.
func (r *rack) round(rotation *Rotation) {
	rotation.Round(r.t.Context())
	r.handOver(rotation)
}

// finish works until nothing is to be done, for a few hours at most, and checks that all have the same password.
func (r *rack) finish(rotation *Rotation) {
	r.t.Helper()
	for range 12 {
		r.round(rotation)
		r.now = r.now.Add(20 * time.Minute)
	}
	assert.Empty(r.t, rotation.Notes())
	for i, s := range r.servers {
		password := s.Password()
		assert.NotEqual(r.t, usual, password, s.Name)
		assert.Equal(r.t, password, r.secrets[s.Name], s.Name)
		kept := r.kept(i)
		assert.Equal(r.t, password, kept.Present, s.Name)
		assert.Empty(r.t, kept.Next+kept.Former+kept.Refusal, s.Name)
		assert.Empty(r.t, kept.Tries, s.Name)
	}
	r.checkSecrecy()
}

func (r *rack) kept(i int) vault.BMCAccount {
	r.t.Helper()
	a := listAccounts(r.site.Nodes[i : i+1])[0]
	kept, ok, err := r.start().Accounts.Lookup(a.host, a.bmc.Username)
	require.NoError(r.t, err)
	require.True(r.t, ok)
	return kept
}

// checkSecrecy: no password is in the log, and what is on DATA is root's alone.
func (r *rack) checkSecrecy() {
	for _, s := range r.servers {
		assert.NotContains(r.t, r.log.String(), s.Password())
	}
	assert.NotContains(r.t, r.log.String(), usual)
	files, err := filepath.Glob(filepath.Join(r.dir, "bmc", "*"))
	require.NoError(r.t, err)
	for _, file := range files {
		info, err := os.Stat(file)
		require.NoError(r.t, err)
		assert.Equal(r.t, os.FileMode(0o600), info.Mode().Perm())
		text, err := os.ReadFile(file)
		require.NoError(r.t, err)
		assert.NotContains(r.t, string(text), usual, "what the site says is on DATA as a digest alone")
	}
}

func TestThePasswordsOfAllBMCsAreReplaced(t *testing.T) {
	r := newRack(t, 3)
	rotation := r.start()
	r.round(rotation)
	assert.Equal(t, usual, r.servers[0].Password(), "nobody has asked")

	begun, err := rotation.Begin(nil)
	require.NoError(t, err)
	assert.Equal(t, 3, begun)
	_, err = rotation.Begin(nil)
	assert.ErrorIs(t, err, ErrRotating)
	r.finish(rotation)
	for _, s := range r.servers {
		assert.Zero(t, s.Counters().BMCRefused, "a wrong password was tried")
		assert.Equal(t, 1, s.Counters().BMCPasswords)
	}

	before := r.servers[0].Password()
	begun, err = rotation.Begin([]string{"node1"})
	require.NoError(t, err)
	assert.Equal(t, 1, begun)
	r.finish(rotation)
	assert.NotEqual(t, before, r.servers[0].Password())
	assert.Equal(t, 1, r.servers[1].Counters().BMCPasswords, "nobody asked for that one")
}

// TestThePowerFailsWhileABMCGetsItsPassword at each moment before and after a BMC is asked, and the Secret is made.
func TestThePowerFailsWhileABMCGetsItsPassword(t *testing.T) {
	cuts := 0
	for isCut := true; isCut; cuts++ {
		t.Run(fmt.Sprint(cuts+1), func(t *testing.T) {
			r := newRack(t, 1)
			_, err := r.start().Begin(nil)
			require.NoError(t, err)
			r.cutAt = cuts + 1
			before := r.start()
			for range 3 {
				r.round(before)
			}
			isCut = r.events >= r.cutAt
			r.finish(r.start())
			assert.LessOrEqual(t, r.servers[0].Counters().BMCRefused, triesPerWindow)
		})
	}
	assert.Greater(t, cuts, 5, "before and after each of two conversations, and the Secret")
}

// TestTheAnswerOfABMCIsLost: it has the next password, and nobody knows.
func TestTheAnswerOfABMCIsLost(t *testing.T) {
	r := newRack(t, 1)
	rotation := r.start()
	_, err := rotation.Begin(nil)
	require.NoError(t, err)
	r.servers[0].SetFaults(simulator.Faults{LostAnswer: true})
	r.round(rotation)
	assert.NotEqual(t, usual, r.servers[0].Password())
	assert.NotEmpty(t, rotation.Notes())
	assert.Equal(t, usual, r.secrets["node1"])
	r.servers[0].SetFaults(simulator.Faults{})
	r.now = r.now.Add(tryWindow)
	r.finish(r.start())
	assert.Zero(t, r.servers[0].Counters().BMCRefused)
}

// TestABMCThatRefusesKeepsItsPassword everywhere, and is named with the reason, which quotes no password.
func TestABMCThatRefusesKeepsItsPassword(t *testing.T) {
	r := newRack(t, 1)
	rotation := r.start()
	_, err := rotation.Begin(nil)
	require.NoError(t, err)
	next := r.kept(0).Next
	r.servers[0].SetFaults(simulator.Faults{FixedLogin: true})
	for range 3 {
		r.round(rotation)
	}
	assert.Equal(t, usual, r.servers[0].Password())
	assert.Equal(t, usual, r.secrets["node1"])
	assert.Zero(t, r.servers[0].Counters().BMCRefused)
	require.Len(t, r.start().Notes(), 1)
	assert.Contains(t, r.start().Notes()[0], "The password of the BMC of node1 was not replaced: ")
	assert.Contains(t, r.start().Notes()[0], "The value [redacted] of the property Password is not accepted.")
	assert.NotContains(t, r.log.String(), next)

	r.servers[0].SetFaults(simulator.Faults{})
	_, err = rotation.Begin(nil)
	require.NoError(t, err)
	r.finish(rotation)
}

// TestABMCThatTakesNoPasswordIsAskedTwiceAnHour at most, and nothing is forgotten.
func TestABMCThatTakesNoPasswordIsAskedTwiceAnHour(t *testing.T) {
	r := newRack(t, 1)
	rotation := r.start()
	_, err := rotation.Begin(nil)
	require.NoError(t, err)
	next := r.kept(0).Next
	r.servers[0].SetFaults(simulator.Faults{LostAnswer: true})
	r.round(rotation)
	r.servers[0].SetFaults(simulator.Faults{Password: "somebody changed it"})
	const hours = 4
	for range hours * 6 {
		r.round(r.start()) // a daemon that starts over and over
		r.now = r.now.Add(10 * time.Minute)
	}
	assert.LessOrEqual(t, r.servers[0].Counters().BMCRefused, hours*triesPerWindow)
	assert.Equal(t, next, r.kept(0).Next)

	r.servers[0].SetFaults(simulator.Faults{})
	r.finish(r.start())
	assert.Equal(t, next, r.servers[0].Password())
}

// TestAWrongPasswordOfTheSiteReplacesNothing: the BMC was told nothing, and the site's password stays in effect.
func TestAWrongPasswordOfTheSiteReplacesNothing(t *testing.T) {
	r := newRack(t, 1)
	rotation := r.start()
	r.servers[0].SetFaults(simulator.Faults{Password: "another one"})
	_, err := rotation.Begin(nil)
	require.NoError(t, err)
	r.round(rotation)
	assert.Equal(t, 1, r.servers[0].Counters().BMCRefused)
	require.Len(t, rotation.Notes(), 1)
	assert.Contains(t, rotation.Notes()[0], "refuses the password")
	assert.Empty(t, r.kept(0).Next)
	assert.Equal(t, usual, rotation.Site(&r.site).Nodes[0].BMC.Password.Reveal())
}

// TestIronicIsWaitedFor while it works on a host.
func TestIronicIsWaitedFor(t *testing.T) {
	r := newRack(t, 2)
	rotation := r.start()
	_, err := rotation.Begin(nil)
	require.NoError(t, err)
	r.busy["node2"] = "its host is inspecting"
	for range 3 {
		r.round(rotation)
	}
	assert.NotEqual(t, usual, r.servers[0].Password())
	assert.Equal(t, usual, r.servers[1].Password())
	assert.Equal(t, []string{"The passwords of BMCs are being replaced; it is waited for 1: node2: its host is inspecting"}, rotation.Notes())
	r.busy = nil
	r.finish(rotation)
}

// TestWhatTheOwnerWritesWins over what the appliance has made of the password before; and that comes back with it.
func TestWhatTheOwnerWritesWins(t *testing.T) {
	r := newRack(t, 1)
	rotation := r.start()
	_, err := rotation.Begin(nil)
	require.NoError(t, err)
	r.finish(rotation)
	b := r.site.Nodes[0].BMC
	in := func() string { return r.start().Site(&r.site).Nodes[0].BMC.Password.Reveal() }
	assert.Equal(t, r.servers[0].Password(), in())
	assert.Equal(t, usual, b.Password.Reveal(), "the site itself was changed")
	b.Password = site.NewSecret("the owner's")
	assert.Equal(t, "the owner's", in())
	b.Password = site.NewSecret(usual)
	assert.Equal(t, r.servers[0].Password(), in())

	// Edited before the BMC was asked, the site is right at once.
	_, err = rotation.Begin(nil)
	require.NoError(t, err)
	b.Password = site.NewSecret("the owner's")
	r.round(rotation)
	assert.Empty(t, r.kept(0).Next)
	assert.Equal(t, 1, r.servers[0].Counters().BMCPasswords)
}

// TestNodesWithOneBMCHaveOneAccount: it is asked once.
func TestNodesWithOneBMCHaveOneAccount(t *testing.T) {
	r := newRack(t, 1)
	second := r.site.Nodes[0]
	other := *second.BMC
	second.Name, second.BMC = "blade2", &other
	r.site.Nodes = append(r.site.Nodes, second, site.Node{Name: "without"})
	rotation := r.start()
	begun, err := rotation.Begin(nil)
	require.NoError(t, err)
	assert.Equal(t, 1, begun)
	for range 3 {
		rotation.Round(t.Context())
		for _, n := range rotation.Site(&r.site).Nodes[:2] {
			r.secrets[string(n.Name)] = n.BMC.Password.Reveal()
		}
	}
	assert.Equal(t, 1, r.servers[0].Counters().BMCPasswords)
	assert.Equal(t, r.servers[0].Password(), r.secrets["blade2"])
	assert.Empty(t, r.kept(0).Former)

	other.Password = site.NewSecret("different")
	_, err = rotation.Begin([]string{"node1", "without", "unheard-of"})
	assert.ErrorContains(t, err, "node1 and blade2 have the same BMC and user with different passwords")
	assert.ErrorContains(t, err, "without has no BMC")
	assert.ErrorContains(t, err, "unheard-of is no node of site.yaml")
}

func TestWhichBMCAnAddressIsOf(t *testing.T) {
	for address, want := range map[string]string{
		"ipmi://10.0.0.5":                                "10.0.0.5",
		"redfish://10.0.0.5/redfish/v1/Systems/1":        "10.0.0.5",
		"redfish://10.0.0.5:443/redfish/v1/Systems/2":    "10.0.0.5",
		"redfish+http://BMC-5/redfish/v1/Systems/1":      "bmc-5",
		"ipmi://10.0.0.5:6230":                           "10.0.0.5:6230",
		"ipmi://[fd00::5]":                               "fd00::5",
		"redfish+http://10.0.0.5:8000/redfish/v1/Syst/1": "10.0.0.5:8000",
	} {
		assert.Equal(t, want, bmcName(site.BMCAddress(address)), address)
	}
}

// TestATornAccountIsLeftAlone: it may be all that is left of a password.
func TestATornAccountIsLeftAlone(t *testing.T) {
	r := newRack(t, 1)
	_, err := r.start().Begin(nil)
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(r.dir, "bmc", "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, os.WriteFile(files[0], []byte(`{"bmc": `), 0o600))
	rotation := r.start()
	_, err = rotation.Begin(nil)
	assert.ErrorContains(t, err, files[0])
	r.round(rotation)
	require.Len(t, rotation.Notes(), 1)
	assert.Contains(t, rotation.Notes()[0], "node1: read account of a BMC: "+files[0])
	text, err := os.ReadFile(files[0])
	require.NoError(t, err)
	assert.Equal(t, `{"bmc": `, string(text))
	assert.Equal(t, usual, r.servers[0].Password())
}
