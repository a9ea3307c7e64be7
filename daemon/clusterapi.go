package daemon

import (
	"context"
	"strings"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/bpa"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider"
)

// serveClusterAPI gives the infrastructure provider of Cluster API its kinds and rights, and does what it has no
// rights for. Without Cluster API it asks one question and does nothing.
func (c *clusters) serveClusterAPI(ctx context.Context, api client.Client, hosts []metal3api.BareMetalHost) error {
	c.clusterAPI.Account = metal3provider.Account{Namespace: bpa.Namespace, Name: bpa.Name}
	return c.clusterAPI.Serve(ctx, api, hosts, blocks(c.nodes()))
}

// blocks are what keeps nodes, in one sentence each with what to do, by name.
func blocks(nodes []status.Node) map[string]string {
	all := map[string]string{}
	for _, n := range nodes {
		all[n.Name] = strings.TrimSuffix(strings.TrimSpace(n.Why+"; "+n.Next), ";")
	}
	return all
}
