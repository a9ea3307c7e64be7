package page

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/workload"
	"firstlight.dev/firstlight/pxe/lease"
)

// full is a site of 200 nodes on which all lists are as long as they get.
func full() *state {
	of := rack(200)
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

// TestEveryPageIsLight holds the first load of the other pages, compressed, to 150 KiB.
func TestEveryPageIsLight(t *testing.T) {
	b := logInAs(t, newServer(t, full()), Owner)
	assetBytes := 0
	for name := range assets() {
		assetBytes += b.ask("GET", "/assets/"+name, "").Body.Len()
	}
	for _, path := range []string{"/clusters", "/clusters/edge", chainPath("edge"), tenantPath("edge", "alpha"), "/addons", "/networks", "/numbers", "/updates", "/secrets", "/appliance", editPath} {
		w := b.ask("GET", path, "", "Accept-Encoding", "gzip")
		require.Equal(t, "gzip", w.Header().Get("Content-Encoding"))
		t.Logf("%s: %d bytes", path, w.Body.Len()+assetBytes)
		assert.Less(t, w.Body.Len()+assetBytes, 150<<10, path)
	}
}
