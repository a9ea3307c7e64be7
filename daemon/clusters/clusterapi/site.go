package clusterapi

import (
	"context"
	"fmt"
	"slices"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/bringup"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

const siteOwner = "firstlight-site-cluster-api" // field manager of what the site asks of Cluster API

// SiteHosts are the hosts of the nodes that a site, with its defaults filled in, gives to Cluster API: as their owner
// would apply them, without an image. They are checked and inspected like every host that someone applies.
func SiteHosts(s *site.Site) []client.Object {
	var all []client.Object
	for _, c := range s.ClustersBy(site.ByClusterAPI) {
		for _, role := range []struct {
			name    string
			members []site.NodeSelector
		}{{label.RoleControlPlane, c.ControlPlane}, {label.RoleWorker, c.Workers}} {
			for _, m := range role.members {
				if i := slices.IndexFunc(s.Nodes, func(n site.Node) bool { return n.Name == m.Node }); i >= 0 {
					all = append(all, siteHost(s.Nodes[i], string(c.Name), role.name)...)
				}
			}
		}
	}
	return all
}

// siteHost is the Secret of a node's BMC, then its host.
func siteHost(n site.Node, cluster, role string) (all []client.Object) {
	host, bmc := metal3.NewHost(n, map[string]string{label.Cluster: cluster, label.Role: role})
	if bmc != nil {
		host.Annotations[label.VerifyCertificate] = string(n.BMC.VerifyCertificate)
		all = append(all, bmc)
	}
	return append(all, host)
}

// SiteClusters are the clusters that a site gives to Cluster API, each of the class, with machines for exactly the hosts
// of its nodes. image finds what a node is installed with.
func SiteClusters(s *site.Site, image func(site.Node) (Image, error)) ([]client.Object, error) {
	var all []client.Object
	for _, c := range s.ClustersBy(site.ByClusterAPI) {
		variables := []any{
			variableOf("endpoint", map[string]any{"host": c.Endpoint.String(), "port": int64(endpointPort)}),
			variableOf("workloadOnControlPlane", len(c.Workers) == 0),
		}
		i := slices.IndexFunc(s.Nodes, func(n site.Node) bool { return n.Name == c.ControlPlane[0].Node })
		if i >= 0 {
			found, err := image(s.Nodes[i])
			if err != nil {
				return nil, fmt.Errorf("cluster %s: node %s: %w", c.Name, s.Nodes[i].Name, err)
			}
			variables = append(variables, variableOf("image", map[string]any{
				"url": found.URL, "checksum": found.SHA256, "checksumType": "sha256", "format": found.Format,
			}))
		}
		var keys []any
		for _, k := range s.Access.SSHKeys {
			keys = append(keys, k.String())
		}
		if len(keys) > 0 {
			variables = append(variables, variableOf("sshKeys", keys))
		}

		topology := map[string]any{
			"classRef": map[string]any{"name": ClassName},
			"version":  assets.KubernetesVersion,
			"controlPlane": map[string]any{
				"replicas":  int64(len(c.ControlPlane)),
				"variables": selectorOverrides(string(c.Name), label.RoleControlPlane),
			},
			"variables": variables,
		}
		if n := len(c.Workers); n > 0 {
			topology["workers"] = map[string]any{"machineDeployments": []any{map[string]any{
				"class":     "worker",
				"name":      "md-0",
				"replicas":  int64(n),
				"variables": selectorOverrides(string(c.Name), label.RoleWorker),
			}}}
		}

		cluster := newObject("Cluster")
		cluster.SetNamespace(metal3.Namespace)
		cluster.SetName(string(c.Name))
		cluster.SetLabels(map[string]string{label.Site: string(s.Name)})
		cluster.Object["spec"] = map[string]any{
			"clusterNetwork": map[string]any{
				"pods":     map[string]any{"cidrBlocks": []any{c.PodCIDR.String()}},
				"services": map[string]any{"cidrBlocks": []any{c.ServiceCIDR.String()}},
			},
			"topology": topology,
		}
		all = append(all, cluster)
	}
	return all, nil
}

// endpointPort is that of every API server that the site names an address for.
const endpointPort = 6443

func variableOf(name string, value any) any { return map[string]any{"name": name, "value": value} }

// selectorOverrides are the variables by which machines take the hosts of a role of a cluster.
func selectorOverrides(cluster, role string) map[string]any {
	labels := map[string]any{label.Cluster: cluster, label.Role: role}
	return map[string]any{"overrides": []any{variableOf("hostSelector", map[string]any{"matchLabels": labels})}}
}

// SiteHostsStage is the fact that the hosts are there. It precedes Ready, so that they are checked and inspected while
// Cluster API comes up.
func SiteHostsStage(sites func() *site.Site, api func() (client.Client, error)) bringup.Stage {
	return apply.Stage{
		Name:  "cluster-hosts-applied",
		Title: "Servers for Cluster API are handed over",
		Fact:  "every node that the site gives to Cluster API is a host",
		Why:   "After the other nodes, by the same guards; none of these gets an image here.",
		Owner: siteOwner,
		API:   api,
		Doing: "applying hosts for Cluster API",

		StaleOnly: true, // what it is switched to, and its image, are whoever claims it to say
		Objects: func() ([]client.Object, error) {
			all := SiteHosts(sites())
			if len(all) == 0 {
				return nil, nil
			}
			c, err := api()
			if err != nil {
				return nil, err
			}
			return all, checkNotInstalled(context.Background(), c, all)
		},
	}.Bringup()
}

// checkNotInstalled checks that no host is one that the appliance installs or installed for another purpose.
func checkNotInstalled(ctx context.Context, api client.Reader, all []client.Object) error {
	for _, o := range all {
		want, ok := o.(*metal3api.BareMetalHost)
		if !ok {
			continue
		}

		have := &metal3api.BareMetalHost{}
		err := api.Get(ctx, client.ObjectKeyFromObject(want), have)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("read host %s: %w", want.Name, err)
		case have.Labels[label.Site] != "":
			return fmt.Errorf("node %s was installed by the appliance before its cluster was given to Cluster API; "+
				"to have it installed again, delete its BareMetalHost: kubectl -n %s delete bmh %s",
				want.Name, metal3.Namespace, want.Name)
		}
	}
	return nil
}

// SiteClustersStage is the fact that the site's clusters are known to Cluster API.
func SiteClustersStage(
	sites func() *site.Site, image func(site.Node) (Image, error), api func() (client.Client, error),
) bringup.Stage {
	s := apply.Stage{
		Name:  "site-clusters-applied",
		Title: "Clusters for Cluster API are handed over",
		Fact:  "every cluster that the site gives to Cluster API is a Cluster of the appliance's class",
		Why:   "A Cluster is checked against its class, so it comes after that.",
		Owner: siteOwner,
		API:   api,
		Doing: "applying Clusters",

		StaleOnly: true, // an owner may scale one by hand
		Objects: func() ([]client.Object, error) {
			all, err := SiteClusters(sites(), image)
			if err != nil || len(all) == 0 {
				return nil, err
			}
			c, err := api()
			if err != nil {
				return nil, err
			}
			return all, keepInstalled(context.Background(), c, all)
		},
	}.Bringup()
	s.AfterReady = true
	return s
}
