package verify

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/pxe/boottrace"
)

// TestWhatNodesShareIsGatheredOnce: what the pre-flights of all nodes have in common is asked for in each round, and
// not for each of them.
func TestWhatNodesShareIsGatheredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRack(t, 90)
		e := r.engine(t, t.TempDir())
		var leases, rounds atomic.Int32
		e.Leases = func() map[site.MAC]netip.Addr { leases.Add(1); return nil }
		e.Records = func() []boottrace.Trace { rounds.Add(1); return nil }
		defer start(t, e)()
		time.Sleep(tickInterval / 2) // one round
		assert.Equal(t, int32(1), leases.Load())
		assert.LessOrEqual(t, rounds.Load(), int32(2), "once for the pre-flights, once for the status")
		open, why := e.Gate("node-90")
		assert.True(t, open, why)
	})
}

func TestSurroundings(t *testing.T) {
	r := newRack(t, 2)
	e := r.engine(t, t.TempDir())
	one, two := r.site.Nodes[0], r.site.Nodes[1]
	address := netip.MustParseAddr("172.22.0.9")
	e.Leases = func() map[site.MAC]netip.Addr { return map[site.MAC]netip.Addr{one.MACs[0]: address} }
	e.Records = func() []boottrace.Trace { return []boottrace.Trace{{MAC: string(two.MACs[0]), Boots: 3}} }
	var host metal3api.BareMetalHost
	host.Name, host.Spec.BootMACAddress = "node-1", "52:54:00:00:00:02"
	s := e.lookAround([]metal3api.BareMetalHost{host})
	s.own["52:54:00:00:00:01"] = true

	assert.Equal(t, []netip.Addr{address}, s.leasedTo(one))
	assert.Empty(t, s.leasedTo(two))
	assert.Empty(t, s.tracesOf(one))
	assert.Equal(t, 3, s.tracesOf(two)[0].Boots)
	assert.Equal(t, map[site.MAC]string{"52:54:00:00:00:01": "the appliance itself"}, s.duplicateMACs(one))
	assert.Equal(t, map[site.MAC]string{"52:54:00:00:00:02": "host node-1"}, s.duplicateMACs(two))
}

// TestAMachineMayBeANodeWithoutAMAC: nobody is told to add to site.yaml what is one of its nodes.
func TestAMachineMayBeANodeWithoutAMAC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRack(t, 2)
		e := r.engine(t, t.TempDir())
		e.Records = func() []boottrace.Trace { return []boottrace.Trace{{MAC: "52:54:00:00:00:99", Boots: 1}} }
		defer start(t, e)()
		pass(1)
		assert.Equal(t, "not-in-site", find(e.Why(), "52:54:00:00:00:99").Rule)

		r.change(func() {
			edited := *r.site
			edited.Nodes = slices.Clone(r.site.Nodes)
			edited.Nodes[1].MACs, edited.Nodes[1].BootMAC = nil, ""
			r.site = &edited
		})
		pass(1)
		found := find(e.Why(), "52:54:00:00:00:99")
		assert.Equal(t, "not-matched", found.Rule)
		assert.Contains(t, found.Why, "may be node-2,")
	})
}
