package drill_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/drill"
	"firstlight.dev/firstlight/image/lab/fleet"
)

// trouble is one host with something wrong, and what its owner must be told.
type trouble struct {
	name  string
	fail  func(*fleet.Host)
	os    string   // of its entry in the site; "": the right one
	reads []string // all of it is read somewhere: on the host in the API or in the daemon's status
	whole bool     // it gets into service nevertheless
}

// TestEveryFaultIsToldAndHarmsNobodyElse runs one host with each fault beside a sound one.
func TestEveryFaultIsToldAndHarmsNobodyElse(t *testing.T) {
	need(t)
	right := drill.OS(drill.ImageA, drill.Sum(drill.ImageA))
	two := func(h *fleet.Host) {
		h.Fit(fleet.Disk{Name: "/dev/sda", Serial: "A", Size: 480 << 30}, fleet.Disk{Name: "/dev/sdb", Serial: "B", Size: 480 << 30})
	}
	all := []trouble{
		{name: "sound", whole: true},
		{name: "password", fail: func(h *fleet.Host) { h.Break(fleet.Faults{Password: "another"}) }, reads: []string{"401"}},
		{name: "hanging BMC", fail: func(h *fleet.Host) { h.Break(fleet.Faults{Hang: true}) }},
		{name: "BMC says 500", fail: func(h *fleet.Host) { h.Break(fleet.Faults{Status: http.StatusInternalServerError}) }},
		{name: "power stuck", fail: func(h *fleet.Host) { h.Break(fleet.Faults{StuckPower: true}) }},
		{name: "wrong digest", os: drill.OS(drill.ImageA, strings.Repeat("0", 64)), reads: []string{"Image failed to verify against checksum"}},
		{name: "download damaged", fail: func(h *fleet.Host) { h.Break(fleet.Faults{Corrupt: true}) }, reads: []string{"Image failed to verify against checksum"}},
		{name: "two disks", fail: two, reads: []string{"rootDevice fits 2 disks (/dev/sda, /dev/sdb)", "serialNumber A"}},
		{name: "no such disk", os: right + "\nrootDevice: {serialNumber: NONE}", reads: []string{"rootDevice fits none of its disks: /dev/sda 480 GiB serialNumber"}},
		{name: "data on the disk", fail: func(h *fleet.Host) {
			h.Fit(fleet.Disk{Name: "/dev/sda", Serial: "A", Size: 480 << 30, Holds: []string{"gpt", "ext4"}})
		}, reads: []string{"not empty, it holds: gpt, ext4"}},
	}
	ctx, d := start(t, "faults", len(all), 60*time.Minute)
	var site strings.Builder
	site.WriteString("name: fleet\nnetworks: {provisioning: {interface: eth0}}\nnodes:\n")
	for i, h := range d.Fleet.Hosts() {
		if all[i].fail != nil {
			all[i].fail(h)
		}
		lines := right
		if all[i].os != "" {
			lines = all[i].os
		}
		site.WriteString(h.Node(strings.Split(lines, "\n")...))
	}
	require.NoError(t, d.Begin(ctx, site.String()))
	began := time.Now()
	told := map[string]string{}
	for open := len(all); open > 0; time.Sleep(2 * time.Second) {
		open = 0
		now := reads(ctx, d)
		for i, h := range d.Fleet.Hosts() {
			if text := now[h.Name]; text != "" && told[h.Name] != text {
				t.Logf("+%.0fs %s (%s): %s", time.Since(began).Seconds(), h.Name, all[i].name, text)
				told[h.Name] = text
			}
			if !finished(all[i], h, told[h.Name]) {
				open++
			}
		}
		require.NoError(t, ctx.Err(), "%d hosts are not where they ought to be", open)
	}
	for i, h := range d.Fleet.Hosts() {
		c := h.Counters()
		t.Logf("%s (%s): %s, %+v", h.Name, all[i].name, h.State(), c)
		if !all[i].whole {
			assert.NotEqual(t, fleet.OnDisk, h.State(), all[i].name)
			for _, disk := range h.Disks() {
				assert.Empty(t, disk.Image, all[i].name)
			}
		}
	}
	for _, i := range []int{1, 2, 3, 4, 7, 8, 9} {
		assert.Zero(t, d.Fleet.Hosts()[i].Counters().DiskWrites, all[i].name)
	}
}

// finished tells whether a host is in service, or its owner was told all that there is to be told.
func finished(c trouble, h *fleet.Host, told string) bool {
	if c.whole {
		return h.State() == fleet.OnDisk
	}
	for _, part := range c.reads {
		if !strings.Contains(told, part) {
			return false
		}
	}
	return true
}

// reads is what can be read of every host, in the API and in the daemon's status.
func reads(ctx context.Context, d *drill.Drill) map[string]string {
	out := map[string]string{}
	if hosts, err := d.Hosts(ctx); err == nil {
		for name, h := range hosts {
			out[name] = fmt.Sprintf("%s; BareMetalHost: %q", h.Status.Provisioning.State, h.Status.ErrorMessage)
		}
	}
	if doc, err := d.Bed.Status(ctx); err == nil {
		for _, n := range doc.Nodes {
			out[n.Name] += fmt.Sprintf("; status: %q %q", n.Error, n.Why)
		}
	}
	return out
}

// TestTokensAreWorthNothingToOthers: an agent speaks for its own node only, and only while that is booted.
func TestTokensAreWorthNothingToOthers(t *testing.T) {
	need(t)
	ctx, d := start(t, "tokens", 3, 40*time.Minute)
	victim, thief, robbed := d.Fleet.Hosts()[0], d.Fleet.Hosts()[1], d.Fleet.Hosts()[2]
	thief.Fit(fleet.Disk{Name: "/dev/sda", Serial: "A"}, fleet.Disk{Name: "/dev/sdb", Serial: "B"}) // it is held, its agent runs on
	robbed.Break(fleet.Faults{Robbed: true})
	require.NoError(t, d.Begin(ctx, d.Fleet.Site("eth0", drill.OS(drill.ImageA, drill.Sum(drill.ImageA)))))
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
	for victim.Counters().Heartbeats == 0 {
		require.NoError(t, ctx.Err())
		time.Sleep(200 * time.Millisecond)
	}
	claim("heartbeat with its token, but from another address", uuid, token)
	claim("heartbeat with a made-up token", uuid, strings.Repeat("x", 32))
	follow(t, ctx, d, time.Now(), func(hosts map[string]metal3api.BareMetalHost) bool {
		return hosts["node3"].Status.Provisioning.State == metal3api.StateProvisioning
	})
	robbed.Break(fleet.Faults{}) // from its next boot on
	follow(t, ctx, d, time.Now(), drill.One("node1", metal3api.StateProvisioned))
	claim("heartbeat with the token of an earlier boot", uuid, token)
	assert.Equal(t, drill.Sum(drill.ImageA), victim.Disks()[0].Image)
	assert.Zero(t, thief.Counters().DiskWrites)
	follow(t, ctx, d, time.Now(), drill.One("node3", metal3api.StateProvisioned))
	assert.Contains(t, events(robbed), "locks itself down")
}
