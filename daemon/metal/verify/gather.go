package verify

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/metal/bmctrust"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
	"firstlight.dev/firstlight/daemon/metal/verify/fact"
	"firstlight.dev/firstlight/daemon/metal/verify/netprobe"
	"firstlight.dev/firstlight/daemon/metal/verify/shell"
)

// asksLately is how long a machine that asked what to boot is taken to wait for the answer: it asks every ten seconds,
// and its firmware starts anew when that takes too long.
const asksLately = 5 * time.Minute

// startPreflight begins a node's pre-flight when it is due: whenever the gate may be asked. e.mu is held.
func (e *Engine) startPreflight(
	ctx context.Context,
	st *state,
	h metal3api.BareMetalHost,
	has bool,
	around func() surroundings,
	now time.Time,
) {
	if has && !metal3.MaySwitchOn(&h) || st.busy || now.Before(st.due) {
		return
	}
	st.busy = true
	e.asking.Go(func() {
		f := e.gatherFacts(ctx, st, h, has, around())
		checks := Preflight(f)
		e.mu.Lock()
		defer e.mu.Unlock()
		st.busy = false
		if ctx.Err() != nil {
			return
		}

		passed := AllPassed(checks)
		before, _ := FirstProblem(st.preflight)
		after, _ := FirstProblem(checks)
		if st.preflight == nil || passed != st.passed || before.Name != after.Name || before.Text != after.Text {
			st.since = time.Now()
			e.Logger.Info(
				"pre-flight", "node", string(st.node.Name), "passed", passed, "check", after.Name, "found", after.Text,
			)
			if e.Changed != nil {
				defer e.Changed()
			}
		}

		st.preflight, st.passed = checks, passed
		st.due = time.Now().Add(recheckInterval)
		if passed {
			st.due = time.Now().Add(askPassed)
		}
	})
}

// gatherFacts finds everything out that a pre-flight is made from, all at once.
func (e *Engine) gatherFacts(
	ctx context.Context,
	st *state,
	h metal3api.BareMetalHost,
	has bool,
	around surroundings,
) Facts {
	n, network := st.node, e.network()
	traces := around.tracesOf(n)
	f := Facts{
		Node:          n,
		Applied:       e.Applied != nil && e.Applied(string(n.Name)),
		Registered:    has,
		Recorded:      !has && e.Recorded != nil && e.Recorded(n.Name),
		Netbooted:     isNetbooted(n, traces),
		Leased:        around.leasedTo(n),
		DuplicateMACs: around.duplicateMACs(n),
		Users:         map[netip.Addr]Reply{},
		Routers:       map[netip.Addr]Reply{},
		Resolvers:     map[netip.Addr]Reply{},
	}
	if has && e.Disk != nil {
		f.Disk = e.Disk(n, h)
	}

	for _, t := range traces {
		f.Asks = f.Asks || !t.Last.ByAnother && time.Since(t.Last.Time) < asksLately
	}

	var mu sync.Mutex
	var wg sync.WaitGroup
	arp := func(into map[netip.Addr]Reply, addr netip.Addr) {
		leg := netprobe.InterfaceFor(around.local, addr)
		if leg == "" || !addr.Is4() {
			return
		}
		wg.Go(func() {
			var r Reply
			if mac, err := network.AddressUser(ctx, leg, addr); err != nil {
				r.Problem = err.Error()
			} else {
				r.From = mac
			}

			if netprobe.IsLocal(around.local, addr) {
				r = Reply{From: "the appliance"}
			}

			mu.Lock()
			defer mu.Unlock()
			into[addr] = r
		})
	}
	for _, a := range staticAddrs(n) {
		arp(f.Users, a)
	}

	for _, a := range routers(n) {
		arp(f.Routers, a)
	}

	for _, a := range resolvers(n) {
		wg.Go(func() {
			r := Reply{From: "yes"}
			if err := network.CheckResolver(ctx, a); err != nil {
				r = Reply{Problem: err.Error()}
			}

			mu.Lock()
			defer mu.Unlock()
			f.Resolvers[a] = r
		})
	}

	if n.BMC != nil && !has {
		wg.Go(func() {
			f.BMC = e.checkBMC(ctx, st, *n.BMC)
			if f.BMC.Verdict == bmc.OK && needsBMCMAC(n) && len(nodeMACs(n)) == 0 {
				f.BootMAC, f.BootMACError = e.findMAC(ctx, st, *n.BMC)
			}
			if f.BMC.Verdict == bmc.OK && n.BootsFromDisc() {
				f.DriveError = e.checkDrive(ctx, st, *n.BMC)
			}
		})
	}

	wg.Go(func() { f.Image = e.Image(ctx, n) })
	wg.Wait()
	f.DHCP, f.Clock, f.Certificate = e.DHCP(), e.Clock(), e.change(n)
	return f
}

// change is what stands between a node's BMC and its password.
func (e *Engine) change(n site.Node) bmctrust.Change {
	if e.Pins == nil || n.BMC == nil {
		return bmctrust.Change{}
	}

	c, _ := e.Pins.Change(*n.BMC)
	return c
}

// checkBMC asks the BMC, unless it is known what it would say: a refusal stands until user,
// password or address are others, a login is believed for some minutes.
func (e *Engine) checkBMC(ctx context.Context, st *state, b site.BMC) bmc.Answer {
	key := e.Refusals.Key(b)
	if text, is := e.Refusals.Lookup(string(st.node.Name), key); is {
		return e.recordBMCAnswer(st, key, bmc.Answer{Verdict: bmc.Refused, Text: text, Fix: bmc.FixRefused})
	}

	e.mu.Lock()
	last, at, same, silences := st.bmc, st.bmcAt, st.bmcKey == key, st.silences
	e.mu.Unlock()
	isAccepted := last.Verdict == bmc.Changed && e.change(st.node) == bmctrust.Change{}
	if same && time.Since(at) < bmcAnswerTTL(last, silences) && !isAccepted {
		return last
	}

	login := e.Login
	if login == nil {
		login = bmc.Client{Pins: e.Pins}.Login
	}

	a := login(ctx, b)
	if ctx.Err() != nil {
		return bmc.Answer{}
	}

	if a.Verdict == bmc.Refused {
		if err := e.Refusals.Add(string(st.node.Name), key, a.Text); err != nil {
			e.Logger.Error("refusal of a BMC not kept", "node", string(st.node.Name), "error", err)
		}
	}

	return e.recordBMCAnswer(st, key, a)
}

// bmcAnswerTTL is how long a BMC's answer is believed; silences are those in a row. One alone may be a lost
// packet, which must not last long enough to fail the launch. That a server is on may be what holds it.
func bmcAnswerTTL(a bmc.Answer, silences int) time.Duration {
	switch {
	case a.Verdict == "":
		return 0
	case a.Verdict == bmc.OK && !a.On:
		return bmcTTL
	case a.Verdict == bmc.Silent && silences == 1:
		return bmcSoon
	}
	return bmcRecheckInterval
}

func (e *Engine) recordBMCAnswer(st *state, key string, a bmc.Answer) bmc.Answer {
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

// startVerification begins to ask an installed node when that is due. e.mu is held.
func (e *Engine) startVerification(
	ctx context.Context,
	st *state,
	api metal3api.BareMetalHost,
	has bool,
	now time.Time,
) {
	if !has {
		return
	}

	h := fact.HostOf(&api)
	what := installation(h)
	if !h.InService() {
		st.answer, st.checks, st.wrong = shell.Answer{}, nil, 0
		return
	}
	if st.installed == what || st.proving || now.Before(st.verifyDue) {
		return
	}

	t, err := e.loginTarget(st.node, h)
	if err != nil {
		e.Logger.Error("node cannot be asked", "node", h.Name, "error", err)
		st.verifyDue = now.Add(recheckInterval)
		return
	}

	st.proving = true
	question := e.Ask
	if question == nil {
		question = shell.Ask
	}

	e.asking.Go(func() {
		a := e.ask(ctx, question, t, what)
		checks := VerifyNode(Findings{
			Node:       st.node,
			Host:       &h,
			Answer:     a,
			LeasesIPv6: func(l site.Link) bool { return e.Site().LeasesIPv6(st.node, l) },
		})
		e.mu.Lock()
		defer e.mu.Unlock()
		st.proving, st.verifyDue = false, time.Now().Add(recheckInterval)
		if ctx.Err() != nil {
			return
		}

		st.answer = a
		if AllPassed(checks) {
			st.installed, st.checks, st.wrong = what, checks, 0
			e.Logger.Info("node proven", "node", h.Name, "address", a.Address.String())
			return
		}

		if p, _ := FirstProblem(checks); p.State == status.CheckFailed {
			st.wrong++
		} else {
			st.wrong = 0
		}

		if st.wrong == 1 {
			deferFirstFailures(checks) // a system that has just started may still be at it
		}

		st.checks = checks
	})
}

// deferFirstFailures makes failures wait: they count when they are found a second time.
func deferFirstFailures(checks []status.Check) {
	for i := range checks {
		if checks[i].State == status.CheckFailed {
			checks[i].State, checks[i].Fix = status.CheckWaiting, ""
		}
	}
}

// loginTarget is how a node is logged in to: at its own addresses, or those it was leased.
func (e *Engine) loginTarget(n site.Node, h fact.Host) (shell.Target, error) {
	t := shell.Target{
		Name:      string(n.Name),
		User:      n.OS.Username,
		Addresses: staticAddrs(n),
		Routers:   routers(n),
		Resolvers: resolvers(n),
	}
	var err error
	if t.Key, err = e.Access(); err != nil {
		return t, err
	}
	if t.HostKey, err = e.HostKey(n.Name); err != nil && !errors.Is(err, vault.ErrNoHostKey) {
		return t, err
	}

	leases := e.Leases()
	own := nodeMACs(n)
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
