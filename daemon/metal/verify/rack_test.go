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
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
	"firstlight.dev/firstlight/daemon/metal/verify/fact"
	"firstlight.dev/firstlight/daemon/metal/verify/netprobe"
	"firstlight.dev/firstlight/daemon/metal/verify/shell"
	"firstlight.dev/firstlight/pxe/boottrace"
)

// rack is a world that a test turns: its site, its hosts, its BMCs.
type rack struct {
	mu     sync.Mutex
	site   *site.Site
	hosts  map[string]metal3api.BareMetalHost
	waits  string
	silent time.Time              // since when the API does not answer; zero: it does
	bmc    map[string]bmc.Verdict // by address; OK if not named
	logins map[string]int         // by address
	probe  map[string]shell.Verdict
	dhcp   DHCP
	kept   map[string]Outcome
	spec   map[string]Spec
	saves  int
}

func (r *rack) LocalAddrs() ([]netprobe.LocalAddr, error)                       { return nil, nil }
func (r *rack) AddressUser(context.Context, string, netip.Addr) (string, error) { return "", nil }
func (r *rack) CheckResolver(context.Context, netip.Addr) error                 { return nil }
func (r *rack) OwnMACs() []string                                               { return nil }
func (r *rack) Load(_ context.Context, name string) (Spec, Outcome, error)      { return r.read(name) }
func (r *rack) Save(_ context.Context, name string, o Outcome) (err error) {
	r.write(name, o)
	return nil
}
func (r *rack) change(do func())         { r.mu.Lock(); defer r.mu.Unlock(); do() }
func (r *rack) count(address string) int { r.mu.Lock(); defer r.mu.Unlock(); return r.logins[address] }

func (r *rack) read(name string) (Spec, Outcome, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wanted, spec := LaunchSpec(r.site)
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
		probe: map[string]shell.Verdict{}, dhcp: DHCP{Enabled: true, Phase: "serving"}, kept: map[string]Outcome{}}
}

// engine is a daemon's on this rack; dir is its DATA.
func (r *rack) engine(t *testing.T, dir string) *Engine {
	_, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	signer, err := ssh.NewSignerFromKey(private)
	require.NoError(t, err)
	return &Engine{
		Outcomes: r, Refusals: &Refusals{Path: filepath.Join(dir, "refused.json"), Log: slog.New(slog.DiscardHandler)}, Logger: slog.New(slog.DiscardHandler),
		Sources: Sources{
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
			Silent:    func(time.Time) time.Time { r.mu.Lock(); defer r.mu.Unlock(); return r.silent },
			Blocked:   func() map[string]metal3.Block { return nil },
			Records:   func() []boottrace.Trace { return nil },
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
				a := shell.Answer{Verdict: v, Text: "it is " + string(v), AskedAt: time.Now(), Report: shell.Report{Time: time.Now()}}
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
