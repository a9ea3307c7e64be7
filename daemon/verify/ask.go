package verify

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/verify/ask"
	"firstlight.dev/firstlight/daemon/verify/bmc"
	"firstlight.dev/firstlight/daemon/verify/fact"
	"firstlight.dev/firstlight/daemon/verify/shell"
)

// Network is the questions that are put to the networks from here.
type Network interface {
	Legs() ([]ask.Leg, error)
	User(ctx context.Context, ifname string, addr netip.Addr) (mac string, err error)
	Resolver(ctx context.Context, server netip.Addr) error
	Own() []string // MACs of this machine
}

// real asks as package ask does.
type real struct{}

func (real) Legs() ([]ask.Leg, error) { return ask.Legs() }
func (real) User(ctx context.Context, ifname string, addr netip.Addr) (string, error) {
	return ask.User(ctx, ifname, addr)
}
func (real) Resolver(ctx context.Context, server netip.Addr) error { return ask.Resolver(ctx, server) }
func (real) Own() []string {
	interfaces, _ := net.Interfaces() // without them nothing works, and other parts say so
	var all []string
	for _, i := range interfaces {
		all = append(all, i.HardwareAddr.String())
	}
	return all
}

// givenUp is the annotation on a host by which its owner gives up what is on its disk.
const givenUp = "firstlight.dev/allow-wipe"

// powers tells whether the hand-over may be about to have a node switched on: it has no host
// yet, or an inspected host waits for its image, or an installation failed and may get another, or its
// owner gave up what is on its disk.
func powers(h metal3api.BareMetalHost, has bool) bool {
	switch {
	case !has:
		return true
	case h.Annotations[givenUp] == "true":
		return true
	case fact.HostOf(&h).InService():
		return false
	case h.Spec.Image != nil:
		return h.Status.ErrorMessage != ""
	}
	return h.Status.Provisioning.State == metal3api.StateAvailable || h.Status.Provisioning.State == metal3api.StateReady
}

// prepare begins a node's pre-flight when it is due: whenever the gate may be asked. e.mu is held.
func (e *Engine) prepare(ctx context.Context, st *state, h metal3api.BareMetalHost, has bool, hosts []metal3api.BareMetalHost, now time.Time) {
	if !powers(h, has) || st.busy || now.Before(st.due) {
		return
	}
	st.busy = true
	e.asking.Go(func() {
		f := e.gather(ctx, st, h, has, hosts)
		checks := Preflight(f)
		e.mu.Lock()
		defer e.mu.Unlock()
		st.busy = false
		if ctx.Err() != nil {
			return
		}
		passed := Passed(checks)
		before, _ := Problem(st.preflight)
		after, _ := Problem(checks)
		if st.preflight == nil || passed != st.passed || before.Name != after.Name || before.Text != after.Text {
			st.since = time.Now()
			e.Logger.Info("pre-flight", "node", string(st.node.Name), "passed", passed, "check", after.Name, "found", after.Text)
			if e.Changed != nil {
				defer e.Changed()
			}
		}
		st.preflight, st.passed = checks, passed
		st.due = time.Now().Add(askAgain)
		if passed {
			st.due = time.Now().Add(askPassed)
		}
	})
}

// gather finds everything out that a pre-flight is made from, all at once.
func (e *Engine) gather(ctx context.Context, st *state, h metal3api.BareMetalHost, has bool, hosts []metal3api.BareMetalHost) Facts {
	n := st.node
	network := e.Network
	if network == nil {
		network = real{}
	}
	f := Facts{Node: n, HandedOver: has, Twins: twins(n, hosts, network.Own()), Users: map[netip.Addr]Reply{}, Routers: map[netip.Addr]Reply{}, Resolvers: map[netip.Addr]Reply{}}
	if has && e.Disk != nil {
		f.Disk = e.Disk(n, h)
	}
	legs, err := network.Legs()
	if err != nil {
		e.Logger.Warn("addresses not read", "error", err)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	arp := func(into map[netip.Addr]Reply, addr netip.Addr) {
		leg := ask.Toward(legs, addr)
		if leg == "" || !addr.Is4() {
			return
		}
		wg.Go(func() {
			var r Reply
			if mac, err := network.User(ctx, leg, addr); err != nil {
				r.Problem = err.Error()
			} else {
				r.From = mac
			}
			if ask.Ours(legs, addr) {
				r = Reply{From: "the appliance"}
			}
			mu.Lock()
			defer mu.Unlock()
			into[addr] = r
		})
	}
	for _, a := range statics(n) {
		arp(f.Users, a)
	}
	for _, a := range routers(n) {
		arp(f.Routers, a)
	}
	for _, a := range resolvers(n) {
		wg.Go(func() {
			r := Reply{From: "yes"}
			if err := network.Resolver(ctx, a); err != nil {
				r = Reply{Problem: err.Error()}
			}
			mu.Lock()
			defer mu.Unlock()
			f.Resolvers[a] = r
		})
	}
	if n.BMC != nil && !has {
		wg.Go(func() { f.BMC = e.login(ctx, st, *n.BMC) })
	}
	wg.Go(func() { f.Image = e.Image(ctx, n) })
	wg.Wait()
	f.DHCP, f.Clock = e.DHCP(), e.Clock()
	return f
}

// twins are MACs of the node that a host of another name, or this machine, has as well.
func twins(n site.Node, hosts []metal3api.BareMetalHost, own []string) map[site.MAC]string {
	same := map[site.MAC]string{}
	for _, m := range macs(n) {
		if slices.Contains(own, string(m)) {
			same[m] = "the appliance itself"
		}
		for i := range hosts {
			if h := fact.HostOf(&hosts[i]); h.Name != string(n.Name) && slices.Contains(h.MACs, string(m)) {
				same[m] = "host " + h.Name
			}
		}
	}
	return same
}

// login asks the BMC, unless it is known what it would say: a refusal stands until user,
// password or address are others, a login is believed for some minutes.
func (e *Engine) login(ctx context.Context, st *state, b site.BMC) bmc.Answer {
	key := e.Refusals.Key(b)
	if text, is := e.Refusals.Stands(string(st.node.Name), key); is {
		return e.answered(st, key, bmc.Answer{Verdict: bmc.Refused, Text: text, Fix: bmc.FixRefused})
	}
	e.mu.Lock()
	last, at, same, silences := st.bmc, st.bmcAt, st.bmcKey == key, st.silences
	e.mu.Unlock()
	if same && time.Since(at) < believed(last.Verdict, silences) {
		return last
	}
	login := e.Login
	if login == nil {
		login = bmc.Login
	}
	a := login(ctx, b)
	if ctx.Err() != nil {
		return bmc.Answer{}
	}
	if a.Verdict == bmc.Refused {
		if err := e.Refusals.Note(string(st.node.Name), key, a.Text); err != nil {
			e.Logger.Error("refusal of a BMC not kept", "node", string(st.node.Name), "error", err)
		}
	}
	return e.answered(st, key, a)
}

// believed is how long a BMC's answer is believed; silences are those in a row. One alone may be a lost
// packet, which must not last long enough to fail the launch.
func believed(v bmc.Verdict, silences int) time.Duration {
	switch {
	case v == "":
		return 0
	case v == bmc.OK:
		return bmcFresh
	case v == bmc.Silent && silences == 1:
		return bmcSoon
	}
	return bmcAgain
}

func (e *Engine) answered(st *state, key string, a bmc.Answer) bmc.Answer {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case a.Verdict != bmc.Silent:
		st.silences = 0
	case st.bmcKey != key:
		st.silences = 1
	default:
		st.silences++
	}
	if st.bmcKey != key || st.bmc != a || a.Verdict != bmc.Refused {
		st.bmc, st.bmcKey, st.bmcAt = a, key, time.Now()
	}
	return a
}

// prove begins to ask an installed node when that is due. e.mu is held.
func (e *Engine) prove(ctx context.Context, st *state, api metal3api.BareMetalHost, has bool, now time.Time) {
	if !has {
		return
	}
	h := fact.HostOf(&api)
	what := installation(h)
	if !h.InService() {
		st.answer, st.checks, st.wrong = shell.Answer{}, nil, 0
		return
	}
	if st.installed == what || st.proving || now.Before(st.proofDue) {
		return
	}
	t, err := e.target(st.node, h)
	if err != nil {
		e.Logger.Error("node cannot be asked", "node", h.Name, "error", err)
		st.proofDue = now.Add(askAgain)
		return
	}
	st.proving = true
	question := e.Ask
	if question == nil {
		question = shell.Ask
	}
	e.asking.Go(func() {
		a := question(ctx, t)
		checks := Prove(Findings{Node: st.node, Host: &h, Answer: a})
		e.mu.Lock()
		defer e.mu.Unlock()
		st.proving, st.proofDue = false, time.Now().Add(askAgain)
		if ctx.Err() != nil {
			return
		}
		st.answer = a
		if Passed(checks) {
			st.installed, st.checks, st.wrong = what, checks, 0
			e.Logger.Info("node proven", "node", h.Name, "address", a.Address.String())
			return
		}
		if p, _ := Problem(checks); p.State == status.CheckFailed {
			st.wrong++
		} else {
			st.wrong = 0
		}
		if st.wrong == 1 {
			settle(checks) // a system that has just started may still be at it
		}
		st.checks = checks
	})
}

// settle makes failures wait: they count when they are found a second time.
func settle(checks []status.Check) {
	for i := range checks {
		if checks[i].State == status.CheckFailed {
			checks[i].State, checks[i].Fix = status.CheckWaiting, ""
		}
	}
}

// target is how a node is logged in to: at its own addresses, or those it was leased.
func (e *Engine) target(n site.Node, h fact.Host) (shell.Target, error) {
	t := shell.Target{Name: string(n.Name), User: n.OS.Username, Addresses: statics(n), Routers: routers(n), Resolvers: resolvers(n)}
	var err error
	if t.Key, err = e.Access(); err != nil {
		return t, err
	}
	if t.HostKey, err = e.HostKey(n.Name); err != nil {
		return t, err
	}
	leases := e.Leases()
	own := macs(n)
	for _, m := range h.MACs {
		own = append(own, site.MAC(strings.ToLower(m)))
	}
	for _, m := range own {
		if a, ok := leases[m]; ok && !slices.Contains(t.Addresses, a) {
			t.Addresses = append(t.Addresses, a)
		}
	}
	return t, nil
}
