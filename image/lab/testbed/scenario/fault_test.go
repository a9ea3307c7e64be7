package scenario_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// trouble is one host with something wrong, and what its owner must be told.
type trouble struct {
	name  string
	fail  func(*simulator.Server)
	late  bool     // it goes wrong when the host was handed over and is inspected; else before
	os    string   // of its entry in the site; "": the right one
	reads []string // all of it is read somewhere: on the host in the API or in the daemon's status
	blank bool     // nothing may be written to its disks
	whole bool     // it gets into service nevertheless
}

// TestEveryFaultIsToldAndHarmsNobodyElse runs one host with each fault beside a sound one.
func TestEveryFaultIsToldAndHarmsNobodyElse(t *testing.T) {
	need(t)
	right := scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA))
	broken := func(f simulator.Faults) func(*simulator.Server) { return func(h *simulator.Server) { h.SetFaults(f) } }
	disks := func(d ...simulator.Disk) func(*simulator.Server) {
		return func(h *simulator.Server) { h.SetDisks(d...) }
	}
	all := []trouble{
		{name: "sound", whole: true},
		{name: "wrong password", fail: broken(simulator.Faults{Password: "another"}), blank: true, reads: []string{`refuses the password of user "admin" (it says 401)`}},
		{name: "hanging BMC", fail: broken(simulator.Faults{Hang: true}), blank: true, reads: []string{"the BMC 127.23.0.3:8443 does not answer"}},
		{name: "BMC says 500", fail: broken(simulator.Faults{Status: http.StatusInternalServerError}), blank: true, reads: []string{"answers /redfish/v1/ with 500"}},
		{name: "no image there", os: scenario.OS("absent", scenario.ImageSum(scenario.ImageA)), blank: true, reads: []string{"its server says 404"}},
		{name: "power stuck", fail: broken(simulator.Faults{StuckPower: true}), blank: true, reads: []string{"cannot be switched on or off", "Failed to set node power state"}},
		{name: "password changed later", late: true, fail: broken(simulator.Faults{Password: "another"}), reads: []string{"its BMC refuses user or password", "401"}},
		{name: "BMC hangs later", late: true, fail: broken(simulator.Faults{Hang: true}), reads: []string{"its BMC does not answer Ironic any more"}},
		{name: "wrong digest", os: scenario.OS(scenario.ImageA, strings.Repeat("0", 64)), reads: []string{"its image is damaged or another one", "Image failed to verify against checksum"}},
		{name: "download damaged", fail: broken(simulator.Faults{Corrupt: true}), reads: []string{"its image is damaged or another one", "Image failed to verify against checksum"}},
		{name: "disk breaks", fail: broken(simulator.Faults{BadDisk: true}), reads: []string{"its disk cannot be written", "Input/output error"}},
		{name: "two disks", fail: disks(simulator.Disk{Name: "/dev/sda", Serial: "A", Size: 480 << 30}, simulator.Disk{Name: "/dev/sdb", Serial: "B", Size: 480 << 30}),
			blank: true, reads: []string{"rootDevice fits 2 disks (/dev/sda, /dev/sdb)", "serialNumber A"}},
		{name: "no such disk", os: right + "\nrootDevice: {serialNumber: NONE}", blank: true, reads: []string{"rootDevice fits none of its disks: /dev/sda 480 GiB serialNumber"}},
		{name: "data on the disk", fail: disks(simulator.Disk{Name: "/dev/sda", Serial: "A", Size: 480 << 30, Holds: []string{"gpt", "ext4"}}),
			blank: true, reads: []string{"not empty, it holds: gpt, ext4"}},
	}
	ctx, d := start(t, "faults", len(all), 60*time.Minute)
	var site strings.Builder
	site.WriteString("name: fleet\nnetworks: {provisioning: {interface: eth0}}\nnodes:\n")
	for i, h := range d.Servers.Hosts() {
		if all[i].fail != nil && !all[i].late {
			all[i].fail(h)
		}
		lines := right
		if all[i].os != "" {
			lines = all[i].os
		}
		site.WriteString(h.SiteEntry(strings.Split(lines, "\n")...))
	}
	require.NoError(t, d.Begin(ctx, site.String()))
	_, err := d.Sandbox.AwaitStage(ctx, "site-handed-over", t.Output())
	require.NoError(t, err)
	began := time.Now()
	last, told := map[string]string{}, map[string]string{} // told: all that was read of a host so far
	for open := len(all); open > 0; time.Sleep(2 * time.Second) {
		open = 0
		now := reads(ctx, d)
		for i, h := range d.Servers.Hosts() {
			if all[i].late && h.Counters().BMCWrites > 0 { // it is switched on, and inspected next
				all[i].fail(h)
			}
			if text := now[h.Name]; text != "" && last[h.Name] != text {
				t.Logf("+%.0fs %s (%s): %s", time.Since(began).Seconds(), h.Name, all[i].name, text)
				last[h.Name], told[h.Name] = text, told[h.Name]+text+"\n"
			}
			if !finished(all[i], h, told[h.Name]) {
				open++
			}
		}
		require.NoError(t, ctx.Err(), "%d hosts are not where they ought to be", open)
	}
	for i, h := range d.Servers.Hosts() {
		c := h.Counters()
		t.Logf("%s (%s): %s, %+v", h.Name, all[i].name, h.State(), c)
		assert.Equal(t, all[i].whole, h.State() == simulator.OnDisk, all[i].name)
		if all[i].blank {
			assert.Zero(t, c.DiskWrites, all[i].name)
		}
	}
	assert.Equal(t, 1, d.Servers.Hosts()[1].Counters().BMCRefused, "a wrong password is tried once")
}

// finished tells whether a host is in service, or its owner was told all that there is to be told.
func finished(c trouble, h *simulator.Server, told string) bool {
	if c.whole {
		return h.State() == simulator.OnDisk
	}
	for _, part := range c.reads {
		if !strings.Contains(told, part) {
			return false
		}
	}
	return true
}

// reads is what can be read of every host, in the API and in the daemon's status.
func reads(ctx context.Context, d *scenario.Scenario) map[string]string {
	out := map[string]string{}
	if hosts, err := d.Hosts(ctx); err == nil {
		for name, h := range hosts {
			out[name] = fmt.Sprintf("%s; BareMetalHost: %s", h.Status.Provisioning.State, h.Status.ErrorMessage)
		}
	}
	if doc, err := d.Sandbox.Status(ctx); err == nil {
		for _, n := range doc.Nodes {
			out[n.Name] += fmt.Sprintf("; status: %s; %s", n.Error, n.Why)
		}
	}
	return out
}

// TestEightOfTenFinishBesideADeadAndAFlappingBMC, and the two do when theirs are mended.
func TestEightOfTenFinishBesideADeadAndAFlappingBMC(t *testing.T) {
	need(t)
	const n = 10
	ctx, d := start(t, "eight", n, 60*time.Minute)
	dead, flapping := d.Servers.Hosts()[n-2], d.Servers.Hosts()[n-1]
	dead.SetFaults(simulator.Faults{Hang: true})
	flaps, mend := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer mend()
	work.Go(func() {
		defer flapping.SetFaults(simulator.Faults{})
		tick := time.NewTicker(7 * time.Second)
		defer tick.Stop()
		for bad := false; ; bad = !bad {
			if flapping.SetFaults(simulator.Faults{}); bad {
				flapping.SetFaults(simulator.Faults{Status: http.StatusServiceUnavailable})
			}
			select {
			case <-flaps.Done():
				return
			case <-tick.C:
			}
		}
	})
	require.NoError(t, d.Begin(ctx, d.Servers.SiteDocument("eth0", scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA)))))
	began := time.Now()
	follow(t, ctx, d, began, func(hosts map[string]metal3api.BareMetalHost) bool {
		delete(hosts, dead.Name)
		delete(hosts, flapping.Name)
		return scenario.AllInState(n-2, metal3api.StateProvisioned)(hosts)
	})
	t.Logf("eight of ten provisioned after %.0f s\n%s", time.Since(began).Seconds(), run(t, ctx, d, "firstlightd", "why"))
	assert.Contains(t, says(t, ctx, d, dead.Name, "does not answer"), "127.23.0.9:8443")
	assert.Zero(t, dead.Counters().BMCWrites)
	mend()
	work.Wait()
	dead.SetFaults(simulator.Faults{})
	follow(t, ctx, d, began, scenario.AllInState(n, metal3api.StateProvisioned))
	t.Logf("all ten after %.0f s; flapping: %+v", time.Since(began).Seconds(), flapping.Counters())
	started(t, d)
	onDisk(t, d, scenario.ImageA)
}

// TestTokensAreWorthNothingToOthers: an agent speaks for its own node only, and only while that is booted.
func TestTokensAreWorthNothingToOthers(t *testing.T) {
	need(t)
	ctx, d := start(t, "tokens", 3, 40*time.Minute)
	victim, thief, robbed := d.Servers.Hosts()[0], d.Servers.Hosts()[1], d.Servers.Hosts()[2]
	thief.SetDisks(simulator.Disk{Name: "/dev/sda", Serial: "A"}, simulator.Disk{Name: "/dev/sdb", Serial: "B"}) // it is held, its agent runs on
	robbed.SetFaults(simulator.Faults{TokenStolen: true})
	require.NoError(t, d.Begin(ctx, d.Servers.SiteDocument("eth0", scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA)))))
	agents := func() bool {
		_, a := victim.Identity()
		_, b := thief.Identity()
		return a != "" && b != ""
	}
	for !agents() {
		require.NoError(t, ctx.Err())
		time.Sleep(200 * time.Millisecond)
	}
	uuid, token := victim.Identity()
	_, own := thief.Identity()
	claim := func(what, uuid, token string) {
		code, said, err := thief.Claim(ctx, uuid, token)
		for code == http.StatusConflict && ctx.Err() == nil { // the node is locked: Ironic did not look at the token
			time.Sleep(time.Second)
			code, said, err = thief.Claim(ctx, uuid, token)
		}
		require.NoError(t, err)
		t.Logf("%s: %d %s", what, code, said)
		assert.GreaterOrEqual(t, code, 400, what)
		assert.Less(t, code, 500, what)
	}
	claim("heartbeat for another node with its own token", uuid, own)
	for nodes, err := d.Nodes(ctx); err != nil || nodes[victim.Name].Agent.URL == ""; nodes, err = d.Nodes(ctx) { // Ironic accepts a heartbeat before it has noted it
		require.NoError(t, ctx.Err())
		time.Sleep(200 * time.Millisecond)
	}
	claim("heartbeat with its token, but from another address", uuid, token)
	claim("heartbeat with a made-up token", uuid, strings.Repeat("x", 32))
	follow(t, ctx, d, time.Now(), func(hosts map[string]metal3api.BareMetalHost) bool {
		return hosts["node3"].Status.Provisioning.State == metal3api.StateProvisioning
	})
	robbed.SetFaults(simulator.Faults{}) // from its next boot on
	follow(t, ctx, d, time.Now(), scenario.HostInState("node1", metal3api.StateProvisioned))
	claim("heartbeat with the token of an earlier boot", uuid, token)
	assert.Equal(t, scenario.ImageSum(scenario.ImageA), victim.Disks()[0].Image)
	assert.Zero(t, thief.Counters().DiskWrites)
	follow(t, ctx, d, time.Now(), scenario.HostInState("node3", metal3api.StateProvisioned))
	assert.Contains(t, events(robbed), "locks itself down")
}
