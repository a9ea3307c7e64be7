package page

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/workload"
	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/capture"
	"firstlight.dev/firstlight/pxe/lease"
)

// full is a site of 200 nodes on which all lists are as long as they get.
func full() *state {
	of := rack(200)
	of.nodeLogs["node-000"] = []NodeLog{{ID: "ironic", Title: "Ironic", Log: longLog()}}
	for i := 1; i < 7; i++ {
		of.nodeLogs["node-000"] = append(of.nodeLogs["node-000"], NodeLog{ID: fmt.Sprint("ramdisk-", i), Title: "Ramdisk", Log: longLog()})
	}
	for i := range 2 * maxBootRows {
		of.packets[mac(3)] = append(of.packets[mac(3)], capture.Exchange{
			Time: time.Unix(int64(i), 0), Protocol: capture.DHCP, Kind: capture.Discover, Count: i, Program: pxe.FirmwarePXE,
			Answers: []capture.Answer{{Kind: capture.Offer, Server: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), File: fmt.Sprint("boot-", i)}},
		})
	}
	addr := netip.MustParseAddr("172.22.4.1")
	for i := range maxLeases {
		of.dhcp[0].Leases = append(of.dhcp[0].Leases, lease.ListedLease{Addr: addr, MAC: mac(i), Hostname: fmt.Sprint("machine-", i)})
		addr = addr.Next()
	}

	c := contents()
	for i := range 300 {
		c.Nodes = append(c.Nodes, workload.Node{Name: fmt.Sprint("edge-", i+10), State: "Ready", Roles: []string{"worker"}, IsWell: true})
		of.doc.Clusters[0].Members = append(of.doc.Clusters[0].Members, status.ClusterNode{Name: fmt.Sprint("edge-", i+10), State: "installed"})
	}
	for i := range 100 {
		c.Pods = append(c.Pods, workload.Pod{Namespace: "default", Name: fmt.Sprint("pod-", i), State: "Pending", Reason: "0/300 nodes are available"})
	}
	for i := range 200 {
		c.Tenants = append(c.Tenants, workload.Tenant{
			TenantID: workload.TenantID{Name: fmt.Sprint("tenant-", i)}, Reason: "NamespaceTaken",
			Message: fmt.Sprintf("namespace team-%d is that of another Tenant", i), Namespaces: []string{fmt.Sprint("team-", i)},
		})
	}
	of.workloads["edge"] = c

	update := updatingFar()
	for i := range 300 {
		update.Members = append(update.Members, status.UpdatedNode{Name: fmt.Sprint("edge-", i), State: "Outdated", Text: "gets jq 1.7"})
	}
	of.doc.Clusters[0].Updates = []status.NodeUpdate{update, nightly()}
	for i := range 200 {
		after := []string{fmt.Sprint("component-", i/2)}
		of.doc.Components = append(of.doc.Components, status.Component{
			Name: fmt.Sprint("default/component-", i), State: "ready", After: after,
			On: []status.ComponentOn{{Cluster: "edge", State: "ready", Revision: fmt.Sprint("1f2e3d4c", i)}},
		})
	}
	return of
}

// longLog is as long as a log gets.
func longLog() workload.Log {
	var text strings.Builder
	for i := 0; text.Len() < 128<<10; i++ {
		sum := sha256.Sum256([]byte{byte(i), byte(i >> 8)})
		fmt.Fprintf(&text, "2026-03-04 05:06:%02d.%03d 200 INFO ironic.conductor [req-%x] node\n", i/1000, i%1000, sum[:8])
	}
	return workload.Log{Text: text.String(), Lines: strings.Count(text.String(), "\n"), IsCut: true}
}

// TestEveryPageIsLight holds the first load of the other pages, compressed, to 150 KiB.
func TestEveryPageIsLight(t *testing.T) {
	of, api := full(), newAPIServer(t)
	api.stick = of.siteText
	b := logInAs(t, newServerWith(t, of, api.deeds()), Owner)
	assetBytes := 0
	for name := range assets() {
		assetBytes += b.ask("GET", "/assets/"+name, "").Body.Len()
	}
	for _, path := range []string{
		"/nodes/node-003", nodeLogsPath("node-000"), nodeLogsPath("node-000") + "/ironic", "/clusters", "/clusters/edge",
		chainPath("edge"), tenantPath("edge", "alpha"), "/addons", "/networks", "/numbers", "/updates", "/secrets",
		"/appliance", editPath,
	} {
		w := b.ask("GET", path, "", "Accept-Encoding", "gzip")
		require.Equal(t, "gzip", w.Header().Get("Content-Encoding"))
		t.Logf("%s: %d bytes", path, w.Body.Len()+assetBytes)
		assert.Less(t, w.Body.Len()+assetBytes, 150<<10, path)
	}
}
