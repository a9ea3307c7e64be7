package daemon

import (
	"context"
	"errors"
	"strings"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/bpa"
	"firstlight.dev/firstlight/daemon/clusters/clusterapi"
	"firstlight.dev/firstlight/daemon/clusters/clusterapi/nodesetup"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/rights"
	"firstlight.dev/firstlight/daemon/metal/mirror"
)

// serveClusterAPI gives the infrastructure provider of Cluster API its kinds and rights, and does what it has no
// rights for; it gives machines what they become nodes by. Without Cluster API it asks one question and does nothing.
func (c *clusters) serveClusterAPI(ctx context.Context, api client.Client, hosts []metal3api.BareMetalHost) error {
	c.clusterAPI.Account = rights.Account{Namespace: bpa.Namespace, Name: bpa.Name}
	isThere, err := c.clusterAPI.Serve(ctx, api, hosts, blocks(c.nodes()))
	if isThere {
		err = errors.Join(err, c.serveNodeSetup(ctx, api))
	}
	return err
}

// serveNodeSetup keeps the Secret as the appliance is now: its addresses follow the site.
func (c *clusters) serveNodeSetup(ctx context.Context, api client.Client) error {
	certificate, key, err := c.mirror.Trust()
	if err != nil {
		return err
	}

	secret, err := nodesetup.Secret(nodesetup.Appliance{
		Addresses:   mirror.Addrs(mirror.ServiceAddresses(c.metal.Site())),
		Authority:   certificate,
		PackagesKey: key,
	})
	if err != nil {
		return err
	}

	set, err := apply.New("firstlight-node-setup", secret)
	if err != nil {
		return err
	}
	if c.nodeSetup.CheckCurrent(ctx, set, api) == nil {
		return nil
	}

	return set.Apply(ctx, api)
}

// classImage is the image of the stick, as the ClusterClass names it.
func (c *clusters) classImage() (clusterapi.Image, error) {
	return c.nodeImage(site.Node{OS: site.OS{Image: site.StickImage}})
}

// nodeImage is what a node of the site is to be installed with.
func (c *clusters) nodeImage(n site.Node) (clusterapi.Image, error) {
	image, err := c.metal.FindImage(n)
	return clusterapi.Image{URL: image.URL, SHA256: image.SHA256, Format: image.Format}, err
}

// needsClusterAPI reports whether the site gives nodes to Cluster API.
func (d *Daemon) needsClusterAPI() bool {
	return len(d.finder.Site().ClustersBy(site.ByClusterAPI)) > 0
}

// blocks are what keeps nodes, in one sentence each with what to do, by name.
func blocks(nodes []status.Node) map[string]string {
	all := map[string]string{}
	for _, n := range nodes {
		all[n.Name] = strings.TrimSuffix(strings.TrimSpace(n.Why+"; "+n.Next), ";")
	}
	return all
}
