package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
)

const rack = `
networks: {provisioning: {cidr: 172.22.0.0/22, dhcp: {range: 172.22.0.10-172.22.3.250}}, bmc: {cidr: 10.30.0.0/16}}
nodeDefaults: {os: {image: other}, rootDevice: {minSizeGigabytes: 100}, labels: {row: b}}
discover:
  count: 250
  credentials:
    - {username: admin, password: first}
    - {username: admin, password: second}
    - {username: root, password: third}
`

// fixture is a Finder with simulated BMCs, whose DATA and clock outlive it.
type fixture struct {
	*Finder
	text    string                  // site.yaml
	booted  []status.UnknownMachine // machines that booted
	logins  map[string]string       // password that a BMC takes; absent: it does not answer
	off     map[string]bool         // BMCs whose server is off
	hosts   []Known
	leases  []Lease
	bmcs    map[netip.Addr]bmc.Presence // of those that have a lease
	changed int

	mu    sync.Mutex
	tried map[string][]string // passwords, by BMC
	asked map[netip.Addr]int  // questions without a login
	clock time.Time
	read  string // text that sound is made of
	sound *site.Site
}

// site is site.yaml, with its defaults.
func (r *fixture) site(t *testing.T) *site.Site {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read != r.text {
		s, problems := site.Load("site.yaml", []byte(r.text))
		require.Empty(t, problems.String())
		r.read, r.sound = r.text, s.WithDefaults()
	}
	return r.sound
}

func newFixture(t *testing.T, text string) *fixture {
	r := &fixture{text: text, logins: map[string]string{}, off: map[string]bool{}, tried: map[string][]string{}, clock: now}
	r.asked, r.bmcs = map[netip.Addr]int{}, map[netip.Addr]bmc.Presence{}
	r.start(t, filepath.Join(t.TempDir(), "secret", "discovered.json"))
	return r
}

// start makes the Finder, as the daemon does at its start.
func (r *fixture) start(t *testing.T, path string) {
	r.Finder = &Finder{
		Path:  path,
		Ready: func() bool { return true },
		Named: func() *site.Site { return r.site(t) },
		Unknown: func() (all []status.UnknownMachine) {
			nodes := r.Site().Nodes
			for _, u := range r.booted {
				known := false
				for _, n := range nodes {
					known = known || n.BootMAC == site.MAC(u.MAC)
				}
				if !known {
					all = append(all, u)
				}
			}
			return all
		},
		Hosts:   func() ([]Known, bool) { return r.hosts, true },
		Login:   r.login,
		Changed: func() { r.changed++ },
		Log:     slog.New(slog.DiscardHandler),
		Now:     func() time.Time { return r.clock },
		Leases:  func() []Lease { return r.leases },
		Presence: func(_ context.Context, addr netip.Addr) bmc.Presence {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.asked[addr]++
			return r.bmcs[addr]
		},
		Identify: func(ctx context.Context, b site.BMC) (site.BMCAddress, bmc.Identity, bmc.Answer) {
			a := r.login(ctx, b)
			if a.Verdict != bmc.OK {
				return b.Address, bmc.Identity{}, a
			}
			if b.Address.Scheme() == "redfish" {
				b.Address += "/redfish/v1/Systems/1"
			}
			return b.Address, bmc.Identity{Model: "Lab", Serial: "SN" + b.Address.Host(), MACs: []string{"52:54:00:00:00:ff"}}, a
		},
	}
}

func (r *fixture) login(_ context.Context, b site.BMC) bmc.Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	host := b.Address.Host()
	r.tried[host] = append(r.tried[host], b.Password.Reveal())
	switch right, answers := r.logins[host]; {
	case !answers:
		return bmc.Answer{Verdict: bmc.Silent, Text: "the BMC " + host + " does not answer"}
	case right != b.Password.Reveal():
		return bmc.Answer{Verdict: bmc.Refused, Text: "refused"}
	}
	return bmc.Answer{Verdict: bmc.OK, Text: "ok", On: !r.off[host]}
}

// rounds does what is decided, so many times.
func (r *fixture) rounds(t *testing.T, n int) {
	t.Helper()
	for range n {
		var logins sync.WaitGroup
		require.NoError(t, r.round(t.Context(), &logins))
		logins.Wait()
	}
}

func (r *fixture) reason(t *testing.T, mac string) Reason {
	t.Helper()
	for _, f := range r.Findings() {
		if f.Machine.MAC == mac {
			return f.Reason
		}
	}
	return ""
}

// TestAMachineBecomesANodeOfTheSite when a person says so, with what nodes have in common, and stays one over restarts.
func TestAMachineBecomesANodeOfTheSite(t *testing.T) {
	r, u := newFixture(t, rack), machine(1)
	r.booted, r.logins[u.BMC] = []status.UnknownMachine{u}, "second"
	r.rounds(t, 3)
	assert.Empty(t, r.Site().Nodes, "nobody approved it")
	shown := r.Describe(r.Unknown())
	require.Len(t, shown, 1)
	assert.True(t, shown[0].Awaits)
	assert.Equal(t, "node-sn001", shown[0].Node)
	assert.Contains(t, shown[0].Fix, "firstlightd approve node-sn001")

	_, err := r.Approve([]string{"node-9"})
	require.ErrorContains(t, err, "no machine has that name")
	assert.Empty(t, r.Site().Nodes)
	for _, other := range []string{"52:54:00:99:99:99/" + u.BMC, u.MAC + "/10.30.0.99", u.MAC, ""} {
		_, err = r.Approve([]string{"node-sn001/" + other})
		require.ErrorContains(t, err, "it is another machine by now", "shown with %s", other)
	}
	assert.Empty(t, r.Site().Nodes)
	approved, err := r.Approve([]string{shown[0].Approval(shown[0].Node)})
	require.NoError(t, err)
	assert.Equal(t, []string{"node-sn001"}, approved)
	assert.Equal(t, 1, r.changed)

	for range 2 {
		nodes := r.Site().Nodes
		require.Len(t, nodes, 1)
		n := nodes[0]
		assert.EqualValues(t, "node-sn001", n.Name)
		assert.EqualValues(t, u.MAC, n.BootMAC)
		assert.EqualValues(t, "ipmi://10.30.0.1", n.BMC.Address)
		assert.Equal(t, "second", n.BMC.Password.Reveal())
		assert.Equal(t, "other", n.OS.Image)
		assert.Equal(t, 100, n.RootDevice.MinSizeGigabytes)
		assert.Equal(t, "b", n.Labels["row"])
		assert.Equal(t, "UEFI", n.BootMode)
		assert.Empty(t, r.Describe(r.Unknown()))
		r.start(t, r.Path) // the daemon starts again
	}

	info, err := os.Stat(r.Path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	_, err = r.Approve([]string{"node-sn001"})
	require.ErrorContains(t, err, "is a node already")

	// Its host is its own, and what site.yaml says of it wins.
	r.hosts = []Known{{Name: "node-sn001", MACs: []string{u.MAC}, BMC: u.BMC, Serial: u.Serial}}
	assert.Equal(t, ReasonNode, r.reason(t, u.MAC))
	r.text += "nodes: [{name: mine, macs: ['" + u.MAC + "']}]\n"
	require.Len(t, r.Site().Nodes, 1)
	assert.EqualValues(t, "mine", r.Site().Nodes[0].Name)

	r.text = "name: other\n"
	assert.Empty(t, r.Site().Nodes, "without a policy there is no node of it")
}

// TestNoBMCIsAskedMoreThanTwiceAnHour whatever it answers, however often the daemon starts, and whatever its clock does.
func TestNoBMCIsAskedMoreThanTwiceAnHour(t *testing.T) {
	r := newFixture(t, rack)
	wrong, silent := machine(1), machine(2)
	r.booted, r.logins[wrong.BMC] = []status.UnknownMachine{wrong, silent}, "none of them"
	limit := func(most int) {
		t.Helper()
		for range 5 {
			r.rounds(t, 2)
			r.start(t, r.Path)
		}
		for address, tried := range r.tried {
			assert.LessOrEqual(t, len(tried), most, address)
		}
	}

	limit(2)
	assert.Equal(t, []string{"first", "second"}, r.tried[wrong.BMC])
	assert.Len(t, r.tried[silent.BMC], 1, "what does not answer is not asked again at once")
	assert.Equal(t, ReasonWaiting, r.reason(t, wrong.MAC))
	r.clock = r.clock.Add(-10 * 365 * 24 * time.Hour)
	limit(2)
	r.clock = now.Add(30 * time.Minute)
	limit(2)

	r.clock = now.Add(62 * time.Minute)
	limit(4)
	assert.Equal(t, []string{"first", "second", "third"}, r.tried[wrong.BMC], "each login once")
	assert.Equal(t, ReasonRefused, r.reason(t, wrong.MAC))
	r.clock = r.clock.Add(5 * time.Hour)
	r.rounds(t, 3)
	assert.Len(t, r.tried[wrong.BMC], 3, "what was refused is not tried again")

	r.logins[silent.BMC] = "first" // it appears later
	r.clock = r.clock.Add(time.Hour)
	r.rounds(t, 2)
	assert.Equal(t, ReasonApproval, r.reason(t, silent.MAC))
	text, err := os.ReadFile(r.Path)
	require.NoError(t, err)
	assert.NotContains(t, string(text), "second", "no password that was refused is kept")
}

// TestACutWhileABMCIsAskedCountsAsATry: what was begun and has no answer was a login as far as the BMC is concerned.
func TestACutWhileABMCIsAskedCountsAsATry(t *testing.T) {
	r, u := newFixture(t, rack), machine(1)
	r.booted = []status.UnknownMachine{u}
	require.Equal(t, ReasonTrying, r.reason(t, u.MAC))
	require.True(t, r.beginLogin(u.BMC)) // and nothing more: the power is cut
	r.start(t, r.Path)
	r.rounds(t, 5)
	assert.Empty(t, r.tried, "asked again at once")
	r.clock = r.clock.Add(tryPause)
	r.rounds(t, 5)
	assert.Len(t, r.tried[u.BMC], 1)
	r.clock = r.clock.Add(tryPause)
	r.rounds(t, 5)
	assert.Len(t, r.tried[u.BMC], 1, "a third one within the hour")
}

// TestNothingIsAskedThatCannotBeNoted: a full or broken DATA stops the logins, not the daemon.
func TestNothingIsAskedThatCannotBeNoted(t *testing.T) {
	r, u := newFixture(t, rack), machine(1)
	r.booted, r.logins[u.BMC] = []status.UnknownMachine{u}, "first"
	require.NoError(t, os.WriteFile(filepath.Dir(r.Path), nil, 0o600)) // no folder can be made there
	r.rounds(t, 3)
	assert.Empty(t, r.tried)
}

// TestATornFileIsPutAside: nothing is a node by it, and it is said.
func TestATornFileIsPutAside(t *testing.T) {
	r := newFixture(t, rack)
	require.NoError(t, os.MkdirAll(filepath.Dir(r.Path), 0o700))
	require.NoError(t, os.WriteFile(r.Path, []byte(`{"machines": [{"na`), 0o600))
	assert.Empty(t, r.Site().Nodes)
	assert.FileExists(t, r.Path+".torn")
}

// TestABMCThatSaysOffIsAnothers: the machine runs, or it would have said nothing.
func TestABMCThatSaysOffIsAnothers(t *testing.T) {
	r, u := newFixture(t, strings.Replace(rack, "count: 250", "count: 250\n  approve: none", 1)), machine(1)
	r.booted, r.logins[u.BMC], r.off[u.BMC] = []status.UnknownMachine{u}, "first", true
	r.rounds(t, 3)
	assert.Equal(t, ReasonOff, r.reason(t, u.MAC))
	assert.Empty(t, r.Site().Nodes)
}

// TestARackWithoutAList: sixty servers, some of them strange, and nobody there. What contradicts itself becomes no
// node, everything else does, each once.
func TestARackWithoutAList(t *testing.T) {
	r := newFixture(t, strings.Replace(rack, "count: 250", "count: 250\n  approve: none", 1))
	for i := range 60 {
		u := machine(i + 1)
		switch i {
		case 10, 11:
			u.Serial = "TWICE"
		case 20, 21:
			u.BMC = "10.30.0.50"
		case 30:
			u.BMC = ""
		}
		r.booted = append(r.booted, u)
		r.logins[u.BMC] = []string{"first", "second"}[i%2]
	}
	r.logins[r.booted[40].BMC] = "unknown to the site"

	r.rounds(t, 20)
	nodes := r.Site().Nodes
	// Three share the BMC 10.30.0.50: whose it is, and the two that claim it.
	assert.Len(t, nodes, 60-2-3-1-1)
	seen := map[string]bool{}
	for _, n := range nodes {
		for _, own := range []string{string(n.Name), string(n.BootMAC), n.BMC.Address.SystemKey()} {
			assert.False(t, seen[own], "%s twice", own)
			seen[own] = true
		}
	}
	for address, tried := range r.tried {
		assert.LessOrEqual(t, len(tried), 2, address)
	}
	assert.NotContains(t, r.tried, "10.30.0.50")

	r.start(t, r.Path)
	assert.Equal(t, nodes, r.Site().Nodes)
}

// TestServersOfWhichOnlyTheBMCIsKnown: BMCs that lease an address are asked, without a login and then with the site's,
// and become nodes without a MAC although their servers are off. What is no BMC, and what is no longer wanted, is told
// nothing.
func TestServersOfWhichOnlyTheBMCIsKnown(t *testing.T) {
	r := newFixture(t, strings.NewReplacer(
		"cidr: 10.30.0.0/16", "cidr: 10.30.0.0/16, interface: eno3, address: 10.30.0.1, dhcp: {range: 10.30.0.10-10.30.0.99}",
		"count: 250", "count: 2\n  approve: none\n  leases: true\n  names: node-{number}",
	).Replace(rack))
	lease := func(host int, p bmc.Presence, password string) netip.Addr {
		addr := netip.MustParseAddr(fmt.Sprintf("10.30.0.%d", host))
		r.leases = append(r.leases, Lease{Addr: addr, MAC: fmt.Sprintf("52:54:00:bb:00:%02x", host)})
		r.bmcs[addr] = p
		if password != "" {
			r.logins[addr.String()], r.off[addr.String()] = password, true
		}
		return addr
	}
	printer := lease(10, bmc.Presence{}, "")
	first := lease(11, bmc.Presence{IPMI: true, Redfish: "1.6.0"}, "second")
	lease(12, bmc.Presence{Redfish: "1.6.0"}, "first")
	r.rounds(t, 5)
	require.Len(t, r.Site().Nodes, 1, "by Redfish alone it was told a password before it may have served IPMI")
	r.clock = r.clock.Add(presencePause)
	r.rounds(t, 5)

	nodes := r.Site().Nodes
	require.Len(t, nodes, 2)
	for i, want := range []struct{ name, address, password string }{
		{"node-1", "ipmi://10.30.0.11", "second"}, {"node-2", "redfish://10.30.0.12/redfish/v1/Systems/1", "first"},
	} {
		assert.EqualValues(t, want.name, nodes[i].Name)
		assert.EqualValues(t, want.address, nodes[i].BMC.Address)
		assert.Equal(t, want.password, nodes[i].BMC.Password.Reveal())
		assert.Empty(t, nodes[i].BootMAC)
		assert.Empty(t, nodes[i].MACs)
		assert.Equal(t, "UEFI", nodes[i].BootMode)
	}
	assert.Equal(t, []string{"first", "second"}, r.tried[first.String()])
	assert.NotContains(t, r.tried, printer.String(), "what is no BMC was told a user name")
	assert.Equal(t, 1, r.asked[first])
	assert.Equal(t, 2, r.asked[printer], "asked again at once")

	// There are as many nodes as are wanted: one more BMC is shown, with the reason, and told nothing.
	third := lease(13, bmc.Presence{IPMI: true}, "first")
	r.rounds(t, 3)
	assert.NotContains(t, r.tried, third.String())
	shown := r.Describe(nil)
	require.Len(t, shown, 1)
	assert.Equal(t, "10.30.0.13", shown[0].BMC)
	assert.Equal(t, "52:54:00:bb:00:0d leased 10.30.0.13 and answers a presence ping as IPMI does", shown[0].Found)
	assert.Equal(t, "there are as many nodes as discover.count allows", shown[0].Why)

	// The nodes stay nodes: when the daemon starts again, when a lease ends, and when the machine boots and names its BMC.
	r.leases = nil
	r.start(t, r.Path)
	u := machine(1, withBMC("10.30.0.11"))
	r.booted = []status.UnknownMachine{u}
	r.rounds(t, 3)
	assert.Equal(t, nodes, r.Site().Nodes)
	assert.Equal(t, ReasonBMCKnown, r.reason(t, u.MAC))
	assert.Len(t, r.tried[first.String()], 2)
	text, err := os.ReadFile(r.Path)
	require.NoError(t, err)
	assert.NotContains(t, string(text), "third")
}

// TestABMCIsApprovedByName, and until then its server is left as it is.
func TestABMCIsApprovedByName(t *testing.T) {
	r := newFixture(t, strings.NewReplacer(
		"cidr: 10.30.0.0/16", "cidr: 10.30.0.0/16, interface: eno3, address: 10.30.0.1, dhcp: {range: 10.30.0.10-10.30.0.99}",
		"count: 250", "count: 2\n  leases: true",
	).Replace(rack))
	addr := netip.MustParseAddr("10.30.0.11")
	r.leases, r.bmcs[addr] = []Lease{{Addr: addr, MAC: "52:54:00:bb:00:01"}}, bmc.Presence{IPMI: true}
	r.logins["10.30.0.11"] = "first"
	r.rounds(t, 3)
	assert.Empty(t, r.Site().Nodes)
	shown := r.Describe(nil)
	require.Len(t, shown, 1)
	assert.True(t, shown[0].Awaits)
	assert.Equal(t, "node-sn10-30-0-11", shown[0].Node)
	assert.Equal(t, "run: firstlightd approve node-sn10-30-0-11", shown[0].Fix)

	// Meanwhile somebody switches it on. Its inventory says more, and the machine gets the name that it has by now.
	booted := machine(1, withBMC(""), withSerial("SN10.30.0.11"))
	r.booted = []status.UnknownMachine{booted}
	r.rounds(t, 3)
	assert.Equal(t, ReasonApproval, r.reason(t, booted.MAC))
	approved, err := r.Approve(nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"node-sn10-30-0-11"}, approved)
	nodes := r.Site().Nodes
	require.Len(t, nodes, 1)
	assert.EqualValues(t, booted.MAC, nodes[0].BootMAC)
	assert.EqualValues(t, "ipmi://10.30.0.11", nodes[0].BMC.Address)
	assert.Len(t, r.tried["10.30.0.11"], 2, "one when it was found, one when it booted")
}
