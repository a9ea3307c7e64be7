package verify

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/crypto/ssh"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/verify/ask"
	"firstlight.dev/firstlight/daemon/verify/bmc"
	"firstlight.dev/firstlight/daemon/verify/fact"
	"firstlight.dev/firstlight/daemon/verify/shell"
	"firstlight.dev/firstlight/pxe/record"
)

// rack is a world that a test turns: its site, its hosts, its BMCs.
type rack struct {
	mu     sync.Mutex
	site   *site.Site
	hosts  map[string]metal3api.BareMetalHost
	waits  string
	bmc    map[string]bmc.Verdict // by address; OK if not named
	logins map[string]int         // by address
	probe  map[string]shell.Verdict
	dhcp   DHCP
	kept   map[string]Outcome
	spec   map[string]Spec
	saves  int
}

func (r *rack) Legs() ([]ask.Leg, error)                                   { return nil, nil }
func (r *rack) User(context.Context, string, netip.Addr) (string, error)   { return "", nil }
func (r *rack) Resolver(context.Context, netip.Addr) error                 { return nil }
func (r *rack) Own() []string                                              { return nil }
func (r *rack) Load(_ context.Context, name string) (Spec, Outcome, error) { return r.read(name) }
func (r *rack) Save(_ context.Context, name string, o Outcome) (err error) {
	r.write(name, o)
	return nil
}
func (r *rack) change(do func())         { r.mu.Lock(); defer r.mu.Unlock(); do() }
func (r *rack) count(address string) int { r.mu.Lock(); defer r.mu.Unlock(); return r.logins[address] }

func (r *rack) read(name string) (Spec, Outcome, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wanted, spec := Wanted(r.site)
	if wanted != name {
		return Spec{}, Outcome{}, errors.New("not found")
	}
	return spec, r.kept[name], nil
}

func (r *rack) write(name string, o Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept[name] = o
	r.saves++
}

// newRack is a rack of n nodes with BMCs; nothing is handed over yet.
func newRack(t *testing.T, n int) *rack {
	text := "name: rack\nverification: {timeout: 60m}\n"
	if n > 0 {
		text += "nodes:\n"
	}
	for i := range n {
		text += fmt.Sprintf("  - {name: node-%d, macs: [\"52:54:00:00:00:%02x\"], bmc: {address: \"ipmi://10.0.0.%d\", username: admin, password: right}}\n", i+1, i+1, i+1)
	}
	s, problems := site.Load("site.yaml", []byte(text))
	require.Empty(t, problems)
	return &rack{site: s.WithDefaults(), hosts: map[string]metal3api.BareMetalHost{}, bmc: map[string]bmc.Verdict{}, logins: map[string]int{},
		probe: map[string]shell.Verdict{}, dhcp: DHCP{Given: true, Phase: "serving"}, kept: map[string]Outcome{}}
}

// engine is a daemon's on this rack; dir is its DATA.
func (r *rack) engine(t *testing.T, dir string) *Engine {
	_, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	signer, err := ssh.NewSignerFromKey(private)
	require.NoError(t, err)
	return &Engine{
		Outcomes: r, Refusals: &Refusals{Path: filepath.Join(dir, "refused.json"), Log: slog.New(slog.DiscardHandler)}, Logger: slog.New(slog.DiscardHandler),
		World: World{
			Network: r,
			Site:    func() *site.Site { r.mu.Lock(); defer r.mu.Unlock(); return r.site },
			Hosts: func() (all []metal3api.BareMetalHost, current bool) {
				r.mu.Lock()
				defer r.mu.Unlock()
				for _, h := range r.hosts {
					all = append(all, h)
				}
				return all, r.waits == ""
			},
			Appliance: func() string { r.mu.Lock(); defer r.mu.Unlock(); return r.waits },
			Held:      func() map[string]string { return nil },
			Records:   func() []record.Record { return nil },
			Leases:    func() map[site.MAC]netip.Addr { return nil },
			DHCP:      func() DHCP { r.mu.Lock(); defer r.mu.Unlock(); return r.dhcp },
			Clock:     func() Clock { return Clock{Now: time.Now()} },
			Access:    func() (ssh.Signer, error) { return signer, nil },
			HostKey:   func(site.Name) (ssh.PublicKey, error) { return signer.PublicKey(), nil },
			Image:     func(context.Context, site.Node) Image { return Image{Name: "debian-13"} },
			Login: func(_ context.Context, b site.BMC) bmc.Answer {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.logins[b.Address.Host()]++
				v := r.bmc[b.Address.Host()]
				if b.Password.Reveal() == "wrong" {
					v = bmc.Refused
				}
				if v == "" {
					v = bmc.OK
				}
				return bmc.Answer{Verdict: v, Text: "the BMC is " + string(v), Fix: "do something"}
			},
			Ask: func(_ context.Context, t shell.Target) shell.Answer {
				r.mu.Lock()
				defer r.mu.Unlock()
				v := r.probe[t.Name]
				if v == "" {
					v = shell.Reached
				}
				a := shell.Answer{Verdict: v, Text: "it is " + string(v), Asked: time.Now(), Report: shell.Report{Time: time.Now()}}
				for _, n := range r.site.Nodes {
					if string(n.Name) == t.Name {
						a.Report.NICs = []shell.NIC{{Name: "eno1", MAC: string(n.BootMAC), Up: true, Addresses: prefixes("172.22.0.33/24")}}
					}
				}
				return a
			},
			Ironic: func(context.Context) (map[string]fact.Ironic, error) { return nil, errors.New("not there") },
		},
	}
}

// start begins an engine; the returned function ends it, as a power cut or a restart does.
func start(t *testing.T, e *Engine) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- e.Run(ctx) }()
	return func() { cancel(); assert.NoError(t, <-ended) }
}

// install makes a host provisioned now.
func (r *rack) install(name string) {
	r.change(func() {
		h := metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: name}}
		h.Status.Provisioning.State = metal3api.StateProvisioned
		h.Status.PoweredOn = true
		h.Status.Provisioning.Image.URL = "http://x/image"
		h.Status.OperationHistory.Provision.End = metav1.Now()
		r.hosts[name] = h
	})
}

func find(nodes []status.Node, name string) status.Node {
	i := slices.IndexFunc(nodes, func(n status.Node) bool { return n.Name == name })
	if i < 0 {
		return status.Node{}
	}
	return nodes[i]
}

func pass(minutes float64) {
	time.Sleep(time.Duration(minutes * float64(time.Minute)))
	synctest.Wait()
}

func TestAMendedBMCOpensTheGateByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRack(t, 2)
		r.bmc["10.0.0.1"] = bmc.Silent
		e := r.engine(t, t.TempDir())
		changed := 0
		e.Changed = func() { changed++ }
		open, why := e.Gate("node-1")
		assert.False(t, open)
		assert.Contains(t, why, "being asked")
		end := start(t, e)
		defer end()
		pass(1)
		open, why = e.Gate("node-1")
		assert.False(t, open)
		assert.Equal(t, "bmc: the BMC is silent", why)
		assert.Equal(t, "bmc-silent", find(e.Nodes(), "node-1").Situation)
		open, _ = e.Gate("node-2")
		assert.True(t, open, "the other node does not go on")
		assert.Equal(t, 1, r.count("10.0.0.2"), "a login that held was repeated at once")
		assert.Equal(t, status.LaunchFailed, e.Launch().State)
		assert.Contains(t, e.Launch().Text, "node-1 is not switched on: the BMC is silent")

		before := changed
		r.change(func() { r.bmc["10.0.0.1"] = bmc.OK })
		pass(1)
		open, _ = e.Gate("node-1")
		assert.True(t, open)
		assert.Greater(t, changed, before, "nobody was told")
		assert.NotContains(t, e.Launch().Text, "the BMC is silent")
		open, why = e.Gate("nobody")
		assert.False(t, open)
		assert.Contains(t, why, "not in site.yaml")
	})
}

// TestARefusedPasswordIsTriedOnce: for hours, over restarts, until somebody changes it or says so.
func TestARefusedPasswordIsTriedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, dir := newRack(t, 1), t.TempDir()
		password := func(s string) {
			r.change(func() {
				edited := *r.site
				edited.Nodes = slices.Clone(r.site.Nodes)
				b := *edited.Nodes[0].BMC
				b.Password = site.NewSecret(s)
				edited.Nodes[0].BMC = &b
				r.site = &edited
			})
		}
		password("wrong")
		for range 3 {
			e := r.engine(t, dir)
			end := start(t, e)
			pass(40)
			assert.Equal(t, 1, r.count("10.0.0.1"), "a refused password was tried again")
			n := find(e.Nodes(), "node-1")
			assert.Equal(t, "bmc-refused", n.Situation)
			assert.Contains(t, n.Next, "not tried again")
			end()
		}
		e := r.engine(t, dir)
		end := start(t, e)
		defer end()
		pass(1)
		e.Again() // a person says that something was mended
		pass(30)
		assert.Equal(t, 2, r.count("10.0.0.1"))
		password("right")
		open, _ := e.Gate("node-1")
		assert.False(t, open, "the gate is open for what was not asked yet")
		pass(1)
		assert.Equal(t, 3, r.count("10.0.0.1"))
		open, why := e.Gate("node-1")
		assert.True(t, open, why)
	})
}

func TestNobodyIsAskedBeforeTheHostsAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRack(t, 1)
		r.waits = "control-plane: the API server to answer"
		e := r.engine(t, t.TempDir())
		defer start(t, e)()
		pass(10)
		assert.Zero(t, r.count("10.0.0.1"))
		n := find(e.Nodes(), "node-1")
		assert.Equal(t, "appliance-starting", n.Situation)
		assert.Equal(t, "waits for the appliance: control-plane: the API server to answer", n.Why)
		assert.Zero(t, e.Launch().Elapsed, "the nodes' time runs before they are handed over")
	})
}

func TestAHostInServiceGetsNoPreflight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRack(t, 1)
		r.install("node-1")
		e := r.engine(t, t.TempDir())
		defer start(t, e)()
		pass(10)
		assert.Zero(t, r.count("10.0.0.1"))
		assert.Equal(t, status.LaunchLaunched, e.Launch().State)
	})
}

// TestAHostThatIsGivenUpMayBeInstalledAnew: the site names another image, and its owner gives up the old one.
func TestAHostThatIsGivenUpMayBeInstalledAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRack(t, 1)
		r.install("node-1")
		e := r.engine(t, t.TempDir())
		defer start(t, e)()
		pass(1)
		ok, _ := e.Gate("node-1")
		assert.False(t, ok)
		r.change(func() {
			h := r.hosts["node-1"]
			h.Annotations = map[string]string{"firstlight.dev/allow-wipe": "true"}
			r.hosts["node-1"] = h
		})
		pass(1)
		ok, said := e.Gate("node-1")
		assert.True(t, ok, said)
	})
}

func TestLaunch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, dir := newRack(t, 10), t.TempDir()
		e := r.engine(t, dir)
		end := start(t, e)
		pass(1)
		for i := range 9 {
			r.install(fmt.Sprintf("node-%d", i+1))
		}
		r.change(func() { r.probe["node-9"] = shell.Locked })
		pass(3)
		l := e.Launch()
		assert.Equal(t, status.LaunchFailed, l.State, "8 of 10 is not launched, and that is told before the deadline")
		assert.Equal(t, 8, l.Proven)
		assert.Equal(t, "not launched, 8 of 10 nodes proven: node-9 is installed, but it is locked; node-10 is in site.yaml and has no BareMetalHost", l.Text)
		kept := r.kept["rack"]
		assert.Equal(t, "8/10", kept.Proven)
		assert.Equal(t, l.Text, kept.Message)

		end() // a restart of the daemon: what was proven stays so, and the time goes on
		pass(30)
		e = r.engine(t, dir)
		end = start(t, e)
		pass(1)
		assert.Equal(t, 8, e.Launch().Proven)
		assert.InDelta(t, 5*60, e.Launch().Elapsed, 70, "time counts only while the appliance runs")
		r.change(func() { r.probe["node-9"] = shell.Reached })
		r.install("node-10")
		pass(2)
		assert.Equal(t, "launched: 10 of 10 nodes proven", e.Launch().Text)
		stopped := e.Launch().Elapsed
		saves := r.saves
		pass(30)
		assert.Equal(t, stopped, e.Launch().Elapsed, "the time goes on after the end")
		assert.Equal(t, status.LaunchLaunched, e.Launch().State)
		assert.Equal(t, saves, r.saves, "the API is written to though nothing changes")

		r.change(func() { // installed anew: to be proven anew
			h := r.hosts["node-3"]
			h.Status.OperationHistory.Provision.End = metav1.Now()
			r.hosts["node-3"] = h
			r.probe["node-3"] = shell.Silent
		})
		pass(1)
		assert.False(t, find(e.Nodes(), "node-3").Proven)
		end()
	})
}

func TestDeadlineNamesWhoeverIsNotProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRack(t, 2)
		e := r.engine(t, t.TempDir())
		defer start(t, e)()
		pass(1)
		r.install("node-1")
		r.change(func() {
			r.hosts["node-2"] = metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "node-2"},
				Status: metal3api.BareMetalHostStatus{Provisioning: metal3api.ProvisionStatus{State: metal3api.StateRegistering}}}
		})
		pass(50)
		assert.Equal(t, "1 of 2 nodes proven", e.Launch().Text)
		pass(10)
		assert.Equal(t, "not launched, 1 of 2 nodes proven: node-2 is not proven yet (registering)", e.Launch().Text)
		r.install("node-2")
		pass(1)
		assert.Equal(t, "launched, later than promised: 2 of 2 nodes proven", e.Launch().Text)
	})
}

func TestAFailureJustAfterTheStartIsAskedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRack(t, 1)
		r.probe["node-1"] = shell.Odd
		e := r.engine(t, t.TempDir())
		defer start(t, e)()
		r.install("node-1")
		time.Sleep(3 * time.Second)
		assert.NotEqual(t, status.LaunchFailed, e.Launch().State)
		r.change(func() { r.probe["node-1"] = "" })
		pass(1)
		assert.Equal(t, status.LaunchLaunched, e.Launch().State)
	})
}

func TestAnEmptySiteIsNoSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRack(t, 0)
		e := r.engine(t, t.TempDir())
		defer start(t, e)()
		pass(30)
		assert.Equal(t, status.LaunchNothing, e.Launch().State)
		assert.Equal(t, "nothing to launch: site.yaml names no nodes", r.kept["rack"].Message)
	})
}
