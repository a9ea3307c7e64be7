package verify

import (
	"context"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"golang.org/x/crypto/ssh"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/bmctrust"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
	"firstlight.dev/firstlight/daemon/metal/verify/fact"
	"firstlight.dev/firstlight/daemon/metal/verify/shell"
	"firstlight.dev/firstlight/pxe/boottrace"
)

// Sources is what the engine looks at. Functions without a context answer from memory.
type Sources struct {
	Site      func() *site.Site      // with its defaults, and with the hosts that someone applied as its last nodes
	Applied   func(name string) bool // whether a node of Site is one of those; nil: none is
	Appliance func() string          // what the appliance waits for before it hands nodes over; "": nothing
	// HandsOver reports whether the appliance is so far that it hands nodes over; nil: it is.
	HandsOver func() bool
	Hosts     func() (hosts []metal3api.BareMetalHost, current bool)
	FromSite  func(name string) bool         // whether the site once named a host; nil: it named them all
	Silent    func(now time.Time) time.Time  // since when the API has not answered for Hosts; zero: it does; nil: it always does
	Blocked   func() map[string]metal3.Block // nodes that registration blocks
	Recorded  func(node site.Name) bool      // a backup on DATA names the node; nil: none does
	Records   func() []boottrace.Trace
	Leases    func() map[site.MAC]netip.Addr
	DHCP      func() DHCP
	Clock     func() Clock
	Access    func() (ssh.Signer, error) // the appliance's log-in
	HostKey   func(node site.Name) (ssh.PublicKey, error)

	Image  func(ctx context.Context, n site.Node) Image
	Disk   func(n site.Node, h metal3api.BareMetalHost) int64 // bytes of the disk to install on; 0: not known
	Ironic func(ctx context.Context) (map[string]fact.Ironic, error)
	Log    func(host string) string // the last error in its ramdisk's log
	// Refusal is why what spoke for a host was not let through to Ironic; nil or "": it was.
	Refusal func(host string) (sentence string, at time.Time)
	// Claim is what another machine said in a host's name and was refused; nil or "": nothing.
	Claim func(host string) (sentence string, at time.Time)
	// Erasure is the last time that disks of a host were to be erased; nil: it never was.
	Erasure func(host string) *metal3.Erasure

	// What asks the network; nil: as package ask, bmc and shell do.
	Network Network
	Login   func(ctx context.Context, b site.BMC) bmc.Answer
	BootMAC func(ctx context.Context, b site.BMC, heard func(mac string) bool) (string, error)
	Drive   func(ctx context.Context, b site.BMC) error // nil: there is one for discs
	Ask     func(ctx context.Context, t shell.Target) shell.Answer
}

// Outcomes keeps how the launch stands, beyond the life of the daemon.
type Outcomes interface {
	Load(ctx context.Context, name string) (Spec, Outcome, error)
	Save(ctx context.Context, name string, o Outcome) error
}

// Paces of the engine.
const (
	tickInterval       = time.Second // between two looks at what changed
	beatPerNode        = 5 * time.Millisecond
	recheckInterval    = 15 * time.Second // a pre-flight or proof that did not hold
	askPassed          = time.Minute      // a pre-flight that held, until its node is handed over
	bmcRecheckInterval = 30 * time.Second // a BMC that did not answer
	bmcSoon            = 10 * time.Second // the first time: a login goes over UDP, and is not repeated by itself
	bmcTTL             = 5 * time.Minute  // how long a login is believed
	ironicEvery        = 10 * time.Second
	ironicShare        = 10               // it does one thing at a time: a tenth of its time at most goes into such answers
	settled            = 20 * time.Second // a failure that passes sooner is none of the launch's
	saveEvery          = time.Minute      // if only time went by
)

// Engine asks every node of the site what must be asked, all at once, and tells how each
// stands. Run it once.
type Engine struct {
	Sources
	Outcomes Outcomes
	Logins   *Logins   // nil: no image has a default user
	Refusals *Refusals // BMCs that must not be asked again
	Pins     *bmctrust.Pins
	Changed  func() // something changed that the hand-over or a screen waits for; must not block
	Logger   *slog.Logger

	mu      sync.Mutex
	nodes   map[site.Name]*state
	ironic  map[string]fact.Ironic
	polling bool      // Ironic is being asked
	pollAt  time.Time // and not again before
	asking  sync.WaitGroup

	launch       status.Launch
	all          []status.Node
	spec         Spec
	loaded       string // name of the launch that was read
	elapsed      time.Duration
	ticked       time.Time
	handingSince time.Time // HandsOver has been true since then; zero: it is not
	saved        Outcome
	savedAt      time.Time
	saving       bool

	unknownMachines []status.Node
}

// state is what the engine remembers of a node. Everything in it can be found out again.
type state struct {
	node site.Node // as it was asked

	preflight []status.Check
	passed    bool
	since     time.Time // passed, or what failed, has been so since
	due       time.Time
	busy      bool
	bmc       bmc.Answer
	bmcKey    string
	bmcAt     time.Time
	silences  int    // of the BMC, in a row
	bootMAC   string // that the BMC names; "": not asked
	hasDrive  bool   // its BMC has one for discs

	hostState string
	hostSince time.Time
	lastError string
	want      string // the image it is for

	answer    shell.Answer
	checks    []status.Check
	verifyDue time.Time
	proving   bool
	installed string // what was proven
	wrong     int    // proofs in a row that named a failure

	rule      string
	ruleSince time.Time
	failing   time.Time // it needs a person since; zero: it does not
}

// Run works until ctx ends.
func (e *Engine) Run(ctx context.Context) error {
	defer e.asking.Wait()
	for {
		next := time.NewTimer(max(tickInterval, time.Duration(len(e.Site().Nodes))*beatPerNode))
		e.step(ctx)
		select {
		case <-ctx.Done():
			next.Stop()
			return nil
		case <-next.C:
		}
	}
}

// Recheck makes everything that failed be asked anew, also BMCs that refused: a person says
// that something was mended.
func (e *Engine) Recheck() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Refusals.Clear()
	for _, s := range e.nodes {
		if !s.passed {
			s.bmc, s.due = bmc.Answer{}, time.Time{}
		}
		s.verifyDue = time.Time{}
	}
}

// Gate tells whether a node may be switched on for the first time: its pre-flight passed, and
// was asked of the node as the site describes it now.
func (e *Engine) Gate(name string) (bool, string) {
	var now *site.Node
	nodes := e.Site().Nodes
	for i := range nodes {
		if string(nodes[i].Name) == name {
			now = &nodes[i]
		}
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.nodes[site.Name(name)]
	switch {
	case now == nil:
		return false, "it is not in site.yaml"
	case s == nil || s.preflight == nil || !reflect.DeepEqual(s.node, *now):
		return false, "its pre-flight is being asked"
	case s.passed:
		return true, ""
	}

	c, _ := FirstProblem(s.preflight)
	return false, c.Name + ": " + c.Text
}

// IsHeldRunning reports whether a node is kept from being switched on because it may be in service.
func (e *Engine) IsHeldRunning(node site.Name) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	st := e.nodes[node]
	if st == nil {
		return false
	}
	return slices.ContainsFunc(st.preflight, func(c status.Check) bool {
		return c.Name == checkRunning && c.State == status.CheckFailed
	})
}

// Nodes and Launch are how everything stands, for the status.
func (e *Engine) Nodes() []status.Node {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

// Launch is how the launch stands.
func (e *Engine) Launch() status.Launch {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.launch
}

// step is one look at everything: start what is due, say how each node stands.
func (e *Engine) step(ctx context.Context) {
	s := e.Site()
	list, current := e.Hosts()
	hosts := map[string]metal3api.BareMetalHost{}
	for _, h := range list {
		if !metal3.IsUnregistered(&h) { // nothing was powered on: it stands where a node without a host does
			hosts[h.Name] = h
		}
	}

	waits := e.Appliance()
	if !current && waits == "" {
		waits = "its hosts are being read"
	}

	now := time.Now()
	var silent time.Time
	if e.Silent != nil {
		silent = e.Silent(now)
	}

	asked := waits == "" && silent.IsZero() // by what the hosts are now, or not at all
	e.load(ctx, s, asked)
	e.mu.Lock()
	if e.nodes == nil {
		e.nodes = map[site.Name]*state{}
	}

	around := sync.OnceValue(func() surroundings { return e.lookAround(list) })
	named := map[site.Name]bool{}
	for _, n := range s.Nodes {
		named[n.Name] = true
		st := e.nodes[n.Name]
		if st == nil || !reflect.DeepEqual(st.node, n) {
			fresh := &state{node: n, since: now, ruleSince: now}
			if st != nil { // an edit changes what is asked of a node, not what it was proven to be
				fresh.installed, fresh.bmc, fresh.bmcKey, fresh.bmcAt = st.installed, st.bmc, st.bmcKey, st.bmcAt
				fresh.rule, fresh.ruleSince, fresh.hostState, fresh.hostSince = st.rule, st.ruleSince, st.hostState, st.hostSince
			}

			st = fresh
			e.nodes[n.Name] = st
		}

		h, has := hosts[string(n.Name)]
		if !asked {
			continue
		}

		e.startPreflight(ctx, st, h, has, around, now)
		e.startVerification(ctx, st, h, has, now)
	}

	for name := range e.nodes {
		if !named[name] {
			delete(e.nodes, name)
		}
	}

	e.pollIronic(ctx, now)
	changed := e.updateNodes(s, hosts, waits, silent, now)
	out, due := e.dueOutcome(now)
	e.mu.Unlock()
	if changed && e.Changed != nil {
		e.Changed()
	}

	if due {
		e.asking.Go(func() { e.save(ctx, string(s.Name), out) })
	}
}

// pollIronic asks Ironic in the background, as long as a node is not proven.
func (e *Engine) pollIronic(ctx context.Context, now time.Time) {
	unproven := func(n status.Node) bool { return !n.Verified }
	if e.Ironic == nil || e.polling || now.Before(e.pollAt) || !slices.ContainsFunc(e.all, unproven) {
		return
	}

	e.polling = true
	e.asking.Go(func() {
		all, err := e.Sources.Ironic(ctx)
		took := time.Since(now)
		if err != nil {
			e.Logger.Debug("Ironic not asked", "error", err)
			all = nil // what it said some time ago is worth nothing
		}

		e.mu.Lock()
		defer e.mu.Unlock()
		e.ironic, e.polling, e.pollAt = all, false, now.Add(max(ironicEvery, ironicShare*took))
	})
}

// load takes up what was reached before the daemon started, once the API can be asked.
func (e *Engine) load(ctx context.Context, s *site.Site, asked bool) {
	name, spec := LaunchSpec(s)
	e.mu.Lock()
	again := e.loaded != name || !reflect.DeepEqual(e.spec, spec)
	e.mu.Unlock()
	if !asked || !again {
		return
	}

	kept, out, err := e.Outcomes.Load(ctx, name)
	if err != nil {
		e.Logger.Debug("launch not read", "error", err)
		return
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	if !reflect.DeepEqual(kept, spec) {
		return // the stage that declares it was not there yet
	}

	e.loaded, e.spec, e.elapsed, e.ticked = name, spec, time.Duration(out.ElapsedSeconds)*time.Second, time.Now()
	for _, n := range out.Nodes {
		if st := e.nodes[site.Name(n.Name)]; st != nil && st.installed == "" && n.Verified {
			st.installed, st.checks = n.Installed, n.Checks
		}
	}
}
