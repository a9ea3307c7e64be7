package clusterapi

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Fifty hosts become ten clusters that are applied at once, while managers and provider are killed. Every machine gets a
// host of its own and an address of its own from one pool that all share, and each cluster's control plane precedes its
// workers.
func TestFiftyHostsBecomeTenClusters(t *testing.T) {
	if !strings.Contains(","+os.Getenv("FIRSTLIGHT_TEST")+",", ",fleet,") {
		t.Skip("makes ten clusters, for minutes; set FIRSTLIGHT_TEST=native,fleet")
	}
	const clusters, workers = 10, 4
	r := newRack(t, clusters*(1+workers))
	r.atOnce = clusters
	r.prepareNodeSetup()
	const shared = `apiVersion: ipam.metal3.io/v1alpha1
kind: IPPool
metadata: {name: shared, namespace: metal3}
spec: {namePrefix: shared, prefix: 24, pools: [{start: 10.9.0.10, end: 10.9.0.59}]}
`
	all := []string{shared}
	for i := range clusters {
		name := fmt.Sprintf("edge-%d", i)
		r.prepareWorkload(name)
		all = append(all, r.generateCluster(name, "", 1, workers, "shared"))
	}

	began := time.Now()
	r.apply(strings.Join(all, "\n---\n"))
	r.killSome(4)
	r.settles(clusters, clusters*workers)
	t.Logf("%d machines of %d clusters run after %.0f s", clusters*(1+workers), clusters, time.Since(began).Seconds())
	of := map[string]int{}
	for _, name := range r.list("machines", ".spec.clusterName") {
		of[name]++
	}
	for i := range clusters {
		assert.Equal(t, 1+workers, of[fmt.Sprintf("edge-%d", i)])
	}
	assert.Len(t, r.list("ipaddresses", ".spec.address"), clusters*(1+workers))

	began = time.Now()
	r.run("delete", "clusters", "--all", "-n", "metal3", "--wait=false")
	r.killSome(2)
	r.until("all hosts are free", func() error {
		if claims := r.claims(); len(claims) > 0 {
			return fmt.Errorf("%d hosts are claimed", len(claims))
		}
		return nil
	})
	r.until("all clusters are gone", func() error {
		if left := r.list("clusters", ".metadata.name"); len(left) > 0 {
			return fmt.Errorf("there are %v", left)
		}
		return nil
	})
	t.Logf("gone after %.0f s", time.Since(began).Seconds())
	r.history.assertInvariants()
}
