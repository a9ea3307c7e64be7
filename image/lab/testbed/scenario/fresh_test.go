package scenario_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// givenUp is the site with overwrite: true for one server of so many, as it was for those that were not blank once.
func givenUp(d *scenario.Scenario, every int) string {
	var site strings.Builder
	site.WriteString("name: fleet\nnetworks: {provisioning: {interface: eth0}}\nnodes:\n")
	for i, h := range d.Servers.Hosts() {
		lines := []string{scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA))}
		if i%every == 0 {
			lines = append(lines, "overwrite: true")
		}
		site.WriteString(h.SiteEntry(lines...))
	}
	return site.String()
}

// saysOf waits until the status says something of each of these nodes.
func saysOf(t *testing.T, ctx context.Context, d *scenario.Scenario, hosts []*simulator.Server, part string) {
	t.Helper()
	for {
		said, missing := 0, ""
		doc, err := d.Sandbox.Status(ctx)
		for _, h := range hosts {
			missing = fmt.Sprintf("%s: nothing", h.Name)
			for _, n := range doc.Nodes {
				if n.Name != h.Name {
					continue
				}
				if strings.Contains(n.Why, part) {
					said, missing = said+1, ""
				} else {
					missing = fmt.Sprintf("%s: %s", n.Name, n.Why)
				}
			}
			if missing != "" {
				break
			}
		}
		if err == nil && said == len(hosts) {
			return
		}
		require.NoError(t, ctx.Err(), "%d of %d are said to be %q; %s", said, len(hosts), part, missing)
		time.Sleep(time.Second)
	}
}

// untouched checks that nobody wrote to a BMC or a disk, and that every server runs its system.
func untouched(t *testing.T, d *scenario.Scenario, when string) {
	t.Helper()
	total := d.Servers.TotalCounters()
	t.Logf("%s: BMC writes %d, disk writes %d, boots %d", when, total.BMCWrites, total.DiskWrites, total.Boots)
	assert.Zero(t, total.BMCWrites)
	assert.Zero(t, total.DiskWrites)
	assert.Zero(t, total.Boots)
	onDisk(t, d, scenario.ImageA)
}

// askForAll has a stranger ask for the script of every server, as if it were each of them.
func askForAll(t *testing.T, ctx context.Context, d *scenario.Scenario) {
	t.Helper()
	s, err := d.NewStranger(ctx)
	require.NoError(t, err)
	defer s.Close()
	for _, h := range d.Servers.Hosts() {
		status, said := s.Ask(ctx, "GET", scenario.Boot+"/ipxe/"+strings.ReplaceAll(h.MAC, ":", "-"), "")
		assert.Equal(t, 200, status, said)
	}
}

// TestAFreshStickLeavesServersInServiceAlone: what a new stick with the same site does to 51 servers that it knows
// nothing of, half of which were not blank once, while a stranger asks for their scripts; and what one torn record among
// 51 does.
func TestAFreshStickLeavesServersInServiceAlone(t *testing.T) {
	need(t)
	const n = 51
	ctx, d := start(t, "fresh", n, 80*time.Minute)
	provision(t, ctx, d, n)
	site := givenUp(d, 2)
	for _, c := range []struct {
		name   string
		loss   scenario.Loss
		damage func() error
		held   []*simulator.Server
		says   string
	}{
		{"a fresh stick", scenario.Stick, func() error { return nil }, d.Servers.Hosts(), "it runs, and this appliance has no record of it: its BMC says that it is on"},
		{"a torn record", scenario.Both, func() error {
			return os.Truncate(filepath.Join(d.Sandbox.DataPath("/var/lib/firstlight/hosts"), "node1.json"), 99)
		}, d.Servers.Hosts()[:1], "its record on DATA cannot be read, so it may be in service: /var/lib/firstlight/hosts/node1.json: it is torn"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d.Servers.ResetCounters()
			require.NoError(t, d.PowerCutWith(ctx, c.loss, c.damage, site))
			guarded(t, ctx, d)
			saysOf(t, ctx, d, c.held, c.says)
			askForAll(t, ctx, d)
			time.Sleep(soak)
			saysOf(t, ctx, d, c.held, c.says)
			untouched(t, d, "held")

			t.Log(run(t, ctx, d, "firstlightd", "adopt", "--all"))
			inService(t, ctx, d, n)
			time.Sleep(soak)
			inService(t, ctx, d, n)
			untouched(t, d, "adopted")
		})
	}
}

// TestDisksOutliveTheirStick: servers that are off may be inspected, and their disks say who installed them. One is
// taken back, one is given up by what its disk was seen to hold.
func TestDisksOutliveTheirStick(t *testing.T) {
	need(t)
	const n = 2
	ctx, d := start(t, "disks", n, 40*time.Minute)
	provision(t, ctx, d, n)
	for _, h := range d.Servers.Hosts() {
		require.NotNil(t, h.Disks()[0].Mark, "%s: what was written says nothing of who did", h.Name)
		assert.Equal(t, "fleet", h.Disks()[0].Mark.Site)
		assert.Equal(t, h.Name, h.Disks()[0].Mark.Node)
		h.Power(false)
	}
	d.Servers.ResetCounters()
	require.NoError(t, d.PowerCut(ctx, scenario.Stick, givenUp(d, 1)))
	saysOf(t, ctx, d, d.Servers.Hosts(), " was installed by this site on 20")
	time.Sleep(soak)
	assert.Zero(t, d.Servers.TotalCounters().DiskWrites, "overwrite: true covers a server that an appliance installed")

	run(t, ctx, d, "firstlightd", "adopt", "node1")
	said := says(t, ctx, d, "node2", "set overwrite: data-")
	_, print, _ := strings.Cut(said, "set overwrite: ")
	print, _, _ = strings.Cut(print, " ")
	one, two := d.Servers.Hosts()[0], d.Servers.Hosts()[1]
	os := scenario.OS(scenario.ImageB, scenario.ImageSum(scenario.ImageB))
	given := "name: fleet\nnetworks: {provisioning: {interface: eth0}}\nnodes:\n" +
		one.SiteEntry(scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA))) + two.SiteEntry(os, "overwrite: "+print)
	require.NoError(t, d.EditSite(ctx, given))
	inService(t, ctx, d, n)
	started(t, d)
	assert.Equal(t, scenario.ImageSum(scenario.ImageA), one.Disks()[0].Image)
	assert.Zero(t, one.Counters().DiskWrites)
	assert.Equal(t, scenario.ImageSum(scenario.ImageB), two.Disks()[0].Image)
	require.NotNil(t, two.Disks()[0].Mark)
}

// TestServersThatBootFromTheNetworkNeedNobody: a rack whose servers were switched on before the appliance, and whose
// firmware asks the network again and again, is installed without a person; so is a server that is off.
func TestServersThatBootFromTheNetworkNeedNobody(t *testing.T) {
	need(t)
	const n = 3
	ctx, d := start(t, "loops", n, 40*time.Minute)
	for _, h := range d.Servers.Hosts()[1:] {
		h.SetNetworkFirst()
		h.Power(true)
	}
	provision(t, ctx, d, n)
}
