package scenario_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// soak is how long hosts in service are watched after they came back: longer than Ironic's look at
// their power, and than the operator's second look at a host that it just took over.
const soak = 60 * time.Second

// TestLossesBesideHostsInService is the reason for the records on DATA: whatever the appliance loses, the
// servers that it installed run on, and nothing writes to a BMC or a disk.
func TestLossesBesideHostsInService(t *testing.T) {
	need(t)
	const n = 51
	ctx, d := start(t, "loss", n, 80*time.Minute)
	provision(t, ctx, d, n)
	site := d.Servers.SiteDocument("eth0", scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA)))
	for _, loss := range []scenario.Loss{scenario.Both, scenario.Ironic, scenario.Etcd, scenario.Nothing} {
		t.Run(loss.String(), func(t *testing.T) {
			lose(t, ctx, d, loss, site, soak)
			onDisk(t, d, scenario.ImageA)
		})
	}
}

// lose cuts the appliance's power, with a loss, and waits until all hosts are in service again and some
// time longer. Nobody may have written to a BMC or a disk meanwhile.
func lose(t *testing.T, ctx context.Context, d *scenario.Scenario, loss scenario.Loss, site string, longer time.Duration) {
	t.Helper()
	n := len(d.Servers.Hosts())
	d.Servers.ResetCounters()
	cut := time.Now()
	require.NoError(t, d.PowerCut(ctx, loss, site))
	guarded(t, ctx, d)
	ready := time.Since(cut)
	inService(t, ctx, d, n)
	all := time.Since(cut)
	time.Sleep(longer)
	total := d.Servers.TotalCounters()
	t.Logf("lost %s beside %d live hosts: all in service again %.0f s after the power cut, %.0f s after the operator was back; BMC writes %d, disk writes %d",
		loss, n, all.Seconds(), (all - ready).Seconds(), total.BMCWrites, total.DiskWrites)
	assert.Zero(t, total.BMCWrites)
	assert.Zero(t, total.DiskWrites)
	assert.Zero(t, total.Boots)
	assert.Zero(t, total.BMCRefused)
}

// guarded waits until the operator is back and hosts in service are guarded, and logs which stages took
// long. It asks once a second: whoever looks on takes the time of what is measured.
func guarded(t *testing.T, ctx context.Context, d *scenario.Scenario) {
	t.Helper()
	for said := ""; ; time.Sleep(time.Second) {
		doc, err := d.Sandbox.Status(ctx)
		require.NoError(t, ctx.Err(), "%v", err)
		if doc.Summary != said {
			said = doc.Summary
			t.Logf("%s %s", time.Now().Format("15:04:05"), said)
		}
		var long []string
		for _, s := range doc.Stages {
			if s.Seconds >= 0.5 {
				long = append(long, fmt.Sprintf("%s %.1f", s.Name, s.Seconds))
			}
			if s.Name == "hosts-guarded" && s.State == status.StateReady {
				t.Logf("seconds: %s", strings.Join(long, ", "))
				return
			}
		}
	}
}

// inService waits until all hosts are the operator's again, without an error, and Ironic has taken over
// every one.
func inService(t *testing.T, ctx context.Context, d *scenario.Scenario, n int) {
	t.Helper()
	_, err := d.WaitForHosts(ctx, time.Now(), func(hosts map[string]metal3api.BareMetalHost) bool {
		for _, h := range hosts {
			if _, paused := h.Annotations[metal3api.PausedAnnotation]; paused || h.Status.OperationalStatus != metal3api.OperationalStatusOK {
				return false
			}
		}
		if !scenario.AllInState(n, metal3api.StateProvisioned)(hosts) {
			return false
		}
		nodes, err := d.Nodes(ctx)
		if err != nil || len(nodes) != n {
			return false
		}
		for _, node := range nodes {
			if node.State != "active" || node.Power != "power on" {
				return false
			}
		}
		return true
	})
	require.NoError(t, err)
}

// TestAnImageEditedInTheSiteIsHeld: a host in service keeps what is on its disk until its owner gives that
// up on the host itself; then it is installed anew, and no other.
func TestAnImageEditedInTheSiteIsHeld(t *testing.T) {
	need(t)
	ctx, d := start(t, "edit", 2, 40*time.Minute)
	provision(t, ctx, d, 2)
	d.Servers.ResetCounters()
	edited := d.Servers.SiteDocument("eth0", scenario.OS(scenario.ImageB, scenario.ImageSum(scenario.ImageB)))
	require.NoError(t, d.EditSite(ctx, edited))
	said := says(t, ctx, d, "node1", "site.yaml names")
	consent := "firstlight.dev/allow-wipe=" + scenario.Boot + "/" + scenario.ImageB + ".raw"
	t.Logf("node1: %s", said)
	assert.Contains(t, said, "annotate --overwrite bmh node1 "+consent)
	time.Sleep(soak)
	assert.Zero(t, d.Servers.TotalCounters().BMCWrites)
	assert.Zero(t, d.Servers.TotalCounters().DiskWrites)

	_, err := d.Sandbox.Run(ctx, "kubectl", "-n", "metal3", "delete", "bmh", "node2", "--wait=false")
	require.Error(t, err)
	t.Logf("delete: %v", err)
	assert.ErrorContains(t, err, "this host is in service: deleting it would switch it off")
	_, err = d.Sandbox.Run(ctx, "kubectl", "-n", "metal3", "patch", "bmh", "node2", "--type=merge", "-p", `{"spec":{"image":null}}`)
	require.Error(t, err)
	t.Logf("remove the image: %v", err)
	assert.ErrorContains(t, err, "changing or removing its image would erase its disk")

	run(t, ctx, d, "kubectl", "-n", "metal3", "annotate", "bmh", "node1", consent)
	began := time.Now()
	follow(t, ctx, d, began, scenario.HostInState("node1", metal3api.StateDeprovisioning))
	follow(t, ctx, d, began, scenario.AllInState(2, metal3api.StateProvisioned))
	one, two := d.Servers.Hosts()[0], d.Servers.Hosts()[1]
	assert.Equal(t, scenario.ImageSum(scenario.ImageB), one.Disks()[0].Image)
	assert.Equal(t, scenario.ImageSum(scenario.ImageA), two.Disks()[0].Image)
	assert.Zero(t, two.Counters().BMCWrites)
	assert.Zero(t, two.Counters().DiskWrites)

	// A node taken out of the site is left alone; one that is given up and deleted is switched off.
	require.NoError(t, d.EditSite(ctx, "name: fleet\nnetworks: {provisioning: {interface: eth0}}\nnodes:\n"+two.SiteEntry(scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA)))))
	run(t, ctx, d, "kubectl", "-n", "metal3", "annotate", "bmh", "node1", "--overwrite", "firstlight.dev/allow-wipe=none")
	time.Sleep(soak)
	assert.Equal(t, simulator.OnDisk, one.State())
	run(t, ctx, d, "kubectl", "-n", "metal3", "delete", "bmh", "node1", "--wait=false")
	follow(t, ctx, d, time.Now(), func(hosts map[string]metal3api.BareMetalHost) bool { return len(hosts) == 1 })
	assert.Equal(t, simulator.Off, one.State())
	assert.Zero(t, two.Counters().BMCWrites)
}

// says waits until the status of the daemon says something of a node, and returns that sentence.
func says(t *testing.T, ctx context.Context, d *scenario.Scenario, node, part string) string {
	t.Helper()
	last := ""
	for ctx.Err() == nil {
		doc, err := d.Sandbox.Status(ctx)
		for _, n := range doc.Nodes {
			if err == nil && n.Name == node {
				for _, last = range []string{n.Error, n.Why} {
					if strings.Contains(last, part) {
						return last
					}
				}
			}
		}
		time.Sleep(time.Second)
	}
	require.Fail(t, "never said", "%s: %q is not in %q", node, part, last)
	return ""
}
