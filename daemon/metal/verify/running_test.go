package verify

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
	"firstlight.dev/firstlight/pxe/boottrace"
)

// TestWhatRunsIsNotReset: a server of which nothing is known is left alone while it may be in service, and is installed
// without a person where it cannot be.
func TestWhatRunsIsNotReset(t *testing.T) {
	on := func(f *Facts) { f.BMC.On = true }
	answers := func(f *Facts) { f.Users[address] = Reply{From: "52:54:00:12:34:02"} }
	for _, c := range []struct {
		name   string
		change []func(*Facts)
		state  status.CheckState
		text   string
	}{
		{"off", nil, status.CheckOK, "it is off"},
		{"on", []func(*Facts){on}, status.CheckFailed, "it runs, and this appliance has no record of it: its BMC says that it is on"},
		{"on, and boots from the network", []func(*Facts){on, func(f *Facts) { f.Netbooted = true }}, status.CheckOK, "it boots from the network"},
		{"answers", []func(*Facts){answers}, status.CheckFailed, "it runs, and this appliance has no record of it: 10.10.110.21 answers with its MAC"},
		{"answers, although it booted from the network", []func(*Facts){on, answers, func(f *Facts) { f.Netbooted = true }}, status.CheckFailed, "it runs, and this appliance has no record of it: 10.10.110.21 answers with its MAC"},
		{"answers from an address that it was leased", []func(*Facts){on, answers, func(f *Facts) {
			f.Netbooted, f.Leased = true, []netip.Addr{address}
		}}, status.CheckOK, "it boots from the network"},
		{"another machine answers", []func(*Facts){func(f *Facts) { f.Users[address] = Reply{From: "52:54:00:99:99:99"} }}, status.CheckOK, "it is off"},
		{"on, and known", []func(*Facts){on, answers, func(f *Facts) { f.Recorded = true }}, status.CheckOK, "known to this appliance"},
		{"on, and registered", []func(*Facts){on, answers, func(f *Facts) { f.Registered = true }}, status.CheckOK, "known to this appliance"},
		{"its BMC was not asked", []func(*Facts){func(f *Facts) { f.BMC = bmc.Answer{} }}, status.CheckSkipped, "its BMC has not said whether it is on"},
		{"without a BMC", []func(*Facts){func(f *Facts) { f.Node.BMC = nil }}, status.CheckSkipped, "it has no BMC that could say whether it is on, and does not answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := good(t)
			for _, change := range c.change {
				change(&f)
			}
			checks := Preflight(f)
			for _, got := range checks {
				if got.Name != checkRunning {
					continue
				}
				assert.Equal(t, c.state, got.State)
				assert.Equal(t, c.text, got.Text)
				if c.state == status.CheckFailed {
					assert.Equal(t, "if it is in service, adopt it with: firstlightd adopt node-1; if it may be installed, switch it off", got.Fix)
				}
			}
			p, _ := FirstProblem(checks)
			assert.Equal(t, c.state == status.CheckFailed, p.Name == checkRunning)
		})
	}
}

// TestWhoBootsFromTheNetwork: what counts is what it was told last. A machine that was sent on runs what is on its disk.
func TestWhoBootsFromTheNetwork(t *testing.T) {
	n := site.Node{MACs: []site.MAC{"52:54:00:00:00:01"}}
	for detail, want := range map[string]bool{"inspect": true, "ramdisk": true, "wait": true, "disk": false, "refuse": false} {
		trace := boottrace.Trace{MAC: "52:54:00:00:00:01", Marks: []boottrace.Mark{{Step: boottrace.StepLease}, {Step: boottrace.StepScript, Detail: detail}}}
		assert.Equal(t, want, isNetbooted(n, []boottrace.Trace{trace}), detail)
		trace.MAC = "52:54:00:00:00:02"
		assert.False(t, isNetbooted(n, []boottrace.Trace{trace}), "another machine")
		trace.MAC, trace.Marks[1].ByAnother = "52:54:00:00:00:01", true
		assert.False(t, isNetbooted(n, []boottrace.Trace{trace}), "%s: another machine asked in its name", detail)
	}
	assert.False(t, isNetbooted(n, []boottrace.Trace{{MAC: "52:54:00:00:00:01", Marks: []boottrace.Mark{{Step: boottrace.StepLease}}}}),
		"a system that runs asks for its lease, too")
}
