package discovery

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
)

var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// machine is the i-th of a rack.
func machine(i int, changes ...func(*status.UnknownMachine)) status.UnknownMachine {
	u := status.UnknownMachine{
		MAC:    fmt.Sprintf("52:54:00:00:%02x:%02x", i>>8, i&0xff),
		Time:   now,
		Serial: fmt.Sprintf("SN%03d", i),
		BMC:    fmt.Sprintf("10.30.%d.%d", i>>8, i&0xff),
		Mode:   "uefi",
	}
	u.NICs = []status.UnknownNIC{{Name: "eno1", MAC: u.MAC, Link: true}}
	for _, change := range changes {
		change(&u)
	}
	return u
}

func withBMC(bmc string) func(*status.UnknownMachine) {
	return func(u *status.UnknownMachine) { u.BMC = bmc }
}

func withSerial(serial string) func(*status.UnknownMachine) {
	return func(u *status.UnknownMachine) { u.Serial = serial }
}

// candidate is a machine whose BMC took a login.
func candidate(u status.UnknownMachine, name site.Name) Machine {
	return Machine{UnknownMachine: u, Name: name, Username: "admin", Password: "p"}
}

func node(u status.UnknownMachine, name site.Name) Machine {
	m := candidate(u, name)
	m.Approved = true
	return m
}

// leased is the BMC of the i-th machine, which leased its address.
func leased(i int) LeasedBMC {
	return LeasedBMC{
		Lease:    Lease{Addr: netip.MustParseAddr(machine(i).BMC), MAC: "52:54:00:bb:00:01"},
		Presence: bmc.Presence{IPMI: true},
	}
}

// bmcAlone is the i-th machine, of which its BMC took a login and nothing booted.
func bmcAlone(i int, changes ...func(*Machine)) Machine {
	whole := machine(i)
	m := candidate(status.UnknownMachine{BMC: whole.BMC, Serial: whole.Serial}, site.Name("node-"+strings.ToLower(whole.Serial)))
	for _, change := range changes {
		change(&m)
	}
	return m
}

func withNIC(mac string) func(*Machine) {
	return func(m *Machine) { m.NICs = []status.UnknownNIC{{MAC: mac}} }
}

func policy(changes ...func(*site.Discover)) *site.Discover {
	p := &site.Discover{
		Count:   300,
		Approve: site.ApproveEach,
		Names:   "node-{serial}",
		BMCs:    []netip.Prefix{netip.MustParsePrefix("10.30.0.0/16")},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func numbered(p *site.Discover)   { p.Names = "node-{number}" }
func unattended(p *site.Discover) { p.Approve = site.ApproveNone }

// reasons are those of findings, by the order of MACs.
func reasons(all []Finding) (list []Reason) {
	for _, f := range all {
		list = append(list, f.Reason)
	}
	return list
}

func TestDecide(t *testing.T) {
	one, two := machine(1), machine(2)
	for name, c := range map[string]struct {
		view   View
		want   []Reason
		accept bool // the first one
		login  int  // of the first one; -1: none
		other  string
	}{
		"nothing was tried yet":       {view: View{Unknown: []status.UnknownMachine{one}}, want: []Reason{ReasonTrying}, login: 0},
		"no BMC":                      {view: View{Unknown: []status.UnknownMachine{machine(1, withBMC(""))}}, want: []Reason{ReasonBMCNone}, login: -1},
		"a BMC elsewhere":             {view: View{Unknown: []status.UnknownMachine{machine(1, withBMC("10.31.0.1"))}}, want: []Reason{ReasonBMCOutside}, login: -1},
		"a name is no address":        {view: View{Unknown: []status.UnknownMachine{machine(1, withBMC("bmc-1"))}}, want: []Reason{ReasonBMCOutside}, login: -1},
		"one BMC for two machines":    {view: View{Unknown: []status.UnknownMachine{one, machine(2, withBMC(one.BMC))}}, want: []Reason{ReasonBMCShared, ReasonBMCShared}, login: -1, other: two.MAC},
		"the BMC of a node":           {view: View{Unknown: []status.UnknownMachine{one}, Known: []Known{{Name: "a", BMC: one.BMC}}}, want: []Reason{ReasonBMCKnown}, login: -1, other: "a"},
		"the BMC of a discovered one": {view: View{Unknown: []status.UnknownMachine{one}, Machines: []Machine{node(machine(2, withBMC(one.BMC)), "node-b")}}, want: []Reason{ReasonBMCKnown, ReasonNode}, login: -1, other: "node-b"},
		"a candidate loses what another claims": {
			view: View{Unknown: []status.UnknownMachine{machine(2, withBMC(one.BMC))}, Machines: []Machine{candidate(one, "node-sn001")}},
			want: []Reason{ReasonBMCShared, ReasonBMCShared}, login: -1, other: two.MAC},
		"a serial twice":             {view: View{Unknown: []status.UnknownMachine{one, machine(2, withSerial(one.Serial))}}, want: []Reason{ReasonSerialShared, ReasonSerialShared}, login: -1, other: two.MAC},
		"a serial twice, by number":  {view: View{Policy: policy(numbered), Unknown: []status.UnknownMachine{one, machine(2, withSerial(one.Serial))}}, want: []Reason{ReasonTrying, ReasonTrying}, login: 0},
		"the serial of a node":       {view: View{Unknown: []status.UnknownMachine{one}, Machines: []Machine{node(machine(2, withSerial(one.Serial)), "node-sn001")}}, want: []Reason{ReasonSerialShared, ReasonNode}, login: -1, other: "node-sn001"},
		"no serial":                  {view: View{Unknown: []status.UnknownMachine{machine(1, withSerial(""))}}, want: []Reason{ReasonSerialNone}, login: -1},
		"a placeholder":              {view: View{Unknown: []status.UnknownMachine{machine(1, withSerial("To Be Filled By O.E.M."))}}, want: []Reason{ReasonSerialNone}, login: -1},
		"zeros":                      {view: View{Unknown: []status.UnknownMachine{machine(1, withSerial("0000000"))}}, want: []Reason{ReasonSerialNone}, login: -1},
		"no serial, by number":       {view: View{Policy: policy(numbered), Unknown: []status.UnknownMachine{machine(1, withSerial(""))}}, want: []Reason{ReasonTrying}, login: 0},
		"the name of a node":         {view: View{Unknown: []status.UnknownMachine{one}, Known: []Known{{Name: "node-sn001", BMC: "10.30.9.9"}}}, want: []Reason{ReasonNameTaken}, login: -1, other: "node-sn001"},
		"two names become one":       {view: View{Unknown: []status.UnknownMachine{machine(1, withSerial("A/1")), machine(2, withSerial("a-1"))}}, want: []Reason{ReasonTrying, ReasonNameTaken}, login: 0},
		"its BMC took a login":       {view: View{Machines: []Machine{candidate(one, "node-sn001")}}, want: []Reason{ReasonApproval}, login: -1},
		"and nobody need approve":    {view: View{Policy: policy(unattended), Machines: []Machine{candidate(one, "node-sn001")}}, want: []Reason{ReasonApproval}, accept: true, login: -1},
		"it is a node":               {view: View{Machines: []Machine{node(one, "node-sn001")}}, want: []Reason{ReasonNode}, login: -1},
		"site.yaml names it by now":  {view: View{Machines: []Machine{node(one, "node-sn001")}, Known: []Known{{Name: "mine", MACs: []string{one.MAC}}}}, want: []Reason{ReasonNameTaken}, login: -1, other: "mine"},
		"site.yaml names what waits": {view: View{Machines: []Machine{candidate(one, "node-sn001")}, Known: []Known{{Name: "mine", MACs: []string{one.MAC}}}}, want: nil, login: -1},
		"as many as allowed":         {view: View{Policy: policy(func(p *site.Discover) { p.Count = 1 }), Unknown: []status.UnknownMachine{one}, Machines: []Machine{node(two, "node-b")}}, want: []Reason{ReasonFull, ReasonNode}, login: -1},
		"one more than allowed at once": {
			view: View{Policy: policy(unattended, func(p *site.Discover) { p.Count = 1 }), Machines: []Machine{candidate(one, "a"), candidate(two, "b")}},
			want: []Reason{ReasonApproval, ReasonFull}, accept: true, login: -1},
		"the second login":             {view: View{Unknown: []status.UnknownMachine{one}, Tries: map[string]Tries{one.BMC: {At: []time.Time{now}, Refused: []string{"k0"}}}}, want: []Reason{ReasonTrying}, login: 1},
		"two tries in this hour":       {view: View{Unknown: []status.UnknownMachine{one}, Tries: map[string]Tries{one.BMC: {At: []time.Time{now.Add(-50 * time.Minute), now}, Refused: []string{"k0", "k1"}}}}, want: []Reason{ReasonWaiting}, login: -1},
		"an hour later":                {view: View{Unknown: []status.UnknownMachine{one}, Tries: map[string]Tries{one.BMC: {At: []time.Time{now.Add(-time.Hour), now}, Refused: []string{"k0", "k1"}}}}, want: []Reason{ReasonTrying}, login: 2},
		"wrong everywhere":             {view: View{Unknown: []status.UnknownMachine{one}, Tries: map[string]Tries{one.BMC: {At: []time.Time{now.Add(-2 * time.Hour)}, Refused: []string{"k0", "k1", "k2"}}}}, want: []Reason{ReasonRefused}, login: -1},
		"a silent BMC":                 {view: View{Unknown: []status.UnknownMachine{one}, Tries: map[string]Tries{one.BMC: {At: []time.Time{now}, Silent: true, Text: "silence"}}}, want: []Reason{ReasonWaiting}, login: -1, other: "silence"},
		"it appears later":             {view: View{Unknown: []status.UnknownMachine{one}, Tries: map[string]Tries{one.BMC: {At: []time.Time{now.Add(-tryPause)}, Silent: true}}}, want: []Reason{ReasonTrying}, login: 0},
		"its BMC says off":             {view: View{Unknown: []status.UnknownMachine{one}, Tries: map[string]Tries{one.BMC: {At: []time.Time{now}, Off: true}}}, want: []Reason{ReasonOff}, login: -1},
		"the site has more to try":     {view: View{Unknown: []status.UnknownMachine{one}, Tries: map[string]Tries{one.BMC: {At: []time.Time{now}, Refused: []string{"old"}}}}, want: []Reason{ReasonTrying}, login: 0},
		"a BMC that leased an address": {view: View{BMCs: []LeasedBMC{leased(1)}}, want: []Reason{ReasonTrying}, login: 0},
		"two of them, named by number": {view: View{Policy: policy(numbered), BMCs: []LeasedBMC{leased(1), leased(2)}},
			want: []Reason{ReasonTrying, ReasonTrying}, login: 0},
		"one that is a node's by site.yaml": {view: View{BMCs: []LeasedBMC{leased(1)}, Known: []Known{{Name: "a", BMC: one.BMC}}}, want: nil},
		"one that a machine names":          {view: View{BMCs: []LeasedBMC{leased(1)}, Unknown: []status.UnknownMachine{one}}, want: []Reason{ReasonTrying}, login: 0},
		"one elsewhere": {view: View{BMCs: []LeasedBMC{leased(1)}, Policy: policy(func(p *site.Discover) { p.BMCs = nil })},
			want: []Reason{ReasonBMCOutside}, login: -1},
		"no login for more than are wanted": {
			view: View{BMCs: []LeasedBMC{leased(1)}, Machines: []Machine{node(two, "b")}, Policy: policy(func(p *site.Discover) { p.Count = 1 })},
			want: []Reason{ReasonFull, ReasonNode}, login: -1},
		"two tries at one of them": {view: View{BMCs: []LeasedBMC{leased(1)},
			Tries: map[string]Tries{one.BMC: {At: []time.Time{now, now}, Refused: []string{"k0", "k1"}}}}, want: []Reason{ReasonWaiting}, login: -1},
		"it took a login":                  {view: View{BMCs: []LeasedBMC{leased(1)}, Machines: []Machine{bmcAlone(1)}}, want: []Reason{ReasonApproval}, login: -1},
		"it took a login, and no one asks": {view: View{Policy: policy(unattended), Machines: []Machine{bmcAlone(1)}}, want: []Reason{ReasonApproval}, accept: true, login: -1},
		"it says no serial number": {view: View{Machines: []Machine{bmcAlone(1, func(m *Machine) { m.Serial, m.Name = "", "" })}},
			want: []Reason{ReasonSerialNone}, login: -1},
		"its machine boots, and names it": {view: View{BMCs: []LeasedBMC{leased(1)}, Unknown: []status.UnknownMachine{one}, Machines: []Machine{bmcAlone(1)}},
			want: []Reason{ReasonTrying}, login: 0},
		"its machine boots, and is known by a NIC": {view: View{
			Unknown:  []status.UnknownMachine{machine(1, withBMC(""), withSerial("other"))},
			Machines: []Machine{bmcAlone(1, withNIC(one.MAC)), bmcAlone(2)},
		}, want: []Reason{ReasonApproval, ReasonTrying}, login: -1},
		"its machine boots, and is known by its serial number": {view: View{
			Unknown: []status.UnknownMachine{machine(1, withBMC(""))}, Machines: []Machine{bmcAlone(1)},
		}, want: []Reason{ReasonTrying}, login: 0},
		"a serial number of two BMCs": {view: View{
			Unknown:  []status.UnknownMachine{machine(1, withBMC(""))},
			Machines: []Machine{bmcAlone(1), bmcAlone(2, func(m *Machine) { m.Serial = one.Serial })},
		}, want: []Reason{ReasonSerialShared, ReasonSerialShared, ReasonBMCNone}, login: -1},
		"its machine boots when it is a node": {view: View{
			Unknown: []status.UnknownMachine{machine(1, withBMC(""))}, Machines: []Machine{bmcAlone(1, func(m *Machine) { m.Approved = true })},
		}, want: []Reason{ReasonNode, ReasonBMCKnown}, login: -1},
		"site.yaml names its BMC by now": {view: View{Machines: []Machine{bmcAlone(1)}, Known: []Known{{Name: "mine", BMC: one.BMC}}}, want: nil},
		"a candidate was rebuilt":        {view: View{Unknown: []status.UnknownMachine{machine(1, withBMC("10.30.7.7"))}, Machines: []Machine{candidate(one, "node-sn001")}}, want: []Reason{ReasonTrying}, login: 0},
	} {
		t.Run(name, func(t *testing.T) {
			v := c.view
			if v.Policy == nil {
				v.Policy = policy()
			}
			v.Keys, v.Now = []string{"k0", "k1", "k2"}, now
			all := Decide(v)
			require.Equal(t, c.want, reasons(all))
			if len(all) == 0 {
				return
			}
			assert.Equal(t, c.accept, all[0].Accept)
			assert.Equal(t, c.login, all[0].Login)
			if c.other != "" {
				assert.Equal(t, c.other, all[0].Other)
			}
			for _, f := range all {
				text, fix := f.Text()
				assert.Equal(t, f.Reason == ReasonNode, text == "", "%s has no sentence", f.Reason)
				assert.Equal(t, f.Reason == ReasonNode || f.Reason == ReasonTrying, fix == "", "%s has no way out", f.Reason)
			}
		})
	}
}

// TestOneMachineWithTwoNICs is one machine, if each boot names the NIC of the other.
func TestOneMachineWithTwoNICs(t *testing.T) {
	first, second := machine(1), machine(2, withBMC("10.30.0.1"), withSerial("SN001"))
	v := View{Policy: policy(), Unknown: []status.UnknownMachine{first, second}, Keys: []string{"k0"}, Now: now}
	assert.Equal(t, []Reason{ReasonBMCShared, ReasonBMCShared}, reasons(Decide(v)), "one alone names the other's NIC")

	nics := []status.UnknownNIC{{MAC: first.MAC}, {MAC: second.MAC}}
	v.Unknown[0].NICs, v.Unknown[1].NICs = nics, nics
	v.Unknown[1].Time = now.Add(time.Minute)
	all := Decide(v)
	require.Equal(t, []Reason{ReasonTrying}, reasons(all))
	assert.Equal(t, second.MAC, all[0].Machine.MAC, "where it booted last")
}

// TestTwoHundredMachines in any order get 200 names, no more than the policy allows, and a second round changes none.
func TestTwoHundredMachines(t *testing.T) {
	for _, names := range []func(*site.Discover){numbered, func(*site.Discover) {}} {
		v := View{Policy: policy(names, unattended, func(p *site.Discover) { p.Count = 150 }), Keys: []string{"k0"}, Now: now}
		for i := range 200 {
			v.Unknown = append(v.Unknown, machine(199-i))
		}

		given := map[string]site.Name{}
		for range 3 {
			for _, f := range Decide(v) {
				switch {
				case f.Login >= 0:
					v.Machines = append(v.Machines, candidate(f.Machine.UnknownMachine, f.Machine.Name))
				case f.Accept:
					for i := range v.Machines {
						v.Machines[i].Approved = v.Machines[i].Approved || v.Machines[i].MAC == f.Machine.MAC
					}
				}
				if f.Machine.Username != "" {
					before, had := given[f.Machine.MAC]
					assert.True(t, !had || before == f.Machine.Name, "%s was called %s", f.Machine.Name, before)
					given[f.Machine.MAC] = f.Machine.Name
				}
			}
		}

		nodes, seen := 0, map[site.Name]bool{}
		for _, m := range v.Machines {
			assert.False(t, seen[m.Name], "%s twice", m.Name)
			seen[m.Name] = true
			if m.Approved {
				nodes++
			}
		}
		assert.Equal(t, 150, nodes)
		assert.Len(t, seen, 200)
	}
}
