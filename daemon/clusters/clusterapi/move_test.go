package clusterapi

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A cluster moves to another appliance with its hosts, by `clusterctl move`: nothing is installed again, no index, address
// or ID changes, and nothing is left behind. The other appliance can grow and delete it.
func TestAClusterMoves(t *testing.T) {
	from := newRack(t, 2)
	from.prepareWorkload("edge")
	from.prepareNodeSetup()
	from.apply(from.generate("", 1, 1))
	from.settles(1, 1)

	kept := []struct{ kind, path string }{
		{"machines", ".spec.providerID"},
		{"metal3machines", `.metadata.annotations.metal3\.io/BareMetalHost`},
		{"metal3datas", ".spec.index"},
		{"ipaddresses", ".spec.address"},
		{"baremetalhosts", ".spec.image.url"},
		{"baremetalhosts", ".spec.bmc.credentialsName"},
	}
	before := map[string][]string{}
	for _, k := range kept {
		before[k.kind+k.path] = from.list(k.kind, k.path)
	}

	to := newRack(t, 0)
	to.booted = maps.Clone(from.booted) // the same servers, which run on
	t.Log(from.clusterctl("move", "-n", "metal3", "--to-kubeconfig", to.api.Kubeconfig))

	to.until("both machines run", func() error {
		if got := to.list("machines", ".status.phase"); len(got) != 2 || strings.Join(got, " ") != "Running Running" {
			return fmt.Errorf("the machines are %v", got)
		}
		return nil
	})
	to.until("both hosts are provisioned", func() error {
		if got := strings.Count(strings.Join(to.list("baremetalhosts", ".status.provisioning.state"), " "), "provisioned"); got != 2 {
			return fmt.Errorf("%d are", got)
		}
		return nil
	})
	for _, k := range kept {
		assert.Subset(t, to.list(k.kind, k.path), before[k.kind+k.path], k.kind+k.path)
	}
	assert.Empty(t, from.list("clusters", ".metadata.name"))
	assert.Empty(t, from.list("machines", ".metadata.name"))
	assert.ElementsMatch(t, []string{"unproven", "taken"}, from.list("baremetalhosts", ".metadata.name"))

	to.run("delete", "cluster", "edge", "-n", "metal3", "--wait=false")
	to.until("all hosts are free", func() error {
		if claims := to.claims(); len(claims) > 0 {
			return fmt.Errorf("hosts are claimed by %v", claims)
		}
		return nil
	})
	to.until("the cluster is gone", func() error {
		if left := to.list("clusters", ".metadata.name"); len(left) > 0 {
			return fmt.Errorf("there is %v", left)
		}
		return nil
	})
}
