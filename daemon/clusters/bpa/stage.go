package bpa

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/bpa/operator"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// Field managers: of the operator's own objects, and of the site's clusters.
const (
	owner     = "firstlight-bpa"
	siteOwner = "firstlight-site"
)

// Stages are the facts that the operator runs, and that it knows the site's clusters.
func Stages(
	o func() (Operator, error),
	clusters func() []v1alpha1.Provisioning,
	api func() (client.Client, error),
) []bringup.Stage {
	operator := apply.Stage{
		Name:  "bpa-ready",
		Title: "The clusters' operator starts",
		Fact:  "the operator of clusters runs",
		Why:   "It claims hosts, so it comes after all that makes and guards them.",
		Owner: owner,
		Objects: func() ([]client.Object, error) {
			o, err := o()
			if err != nil {
				return nil, err
			}
			return o.Objects()
		},
		API:       api,
		Doing:     "applying the operator of clusters",
		StaleOnly: true,
		Ready: func(ctx context.Context, c client.Client) error {
			return apply.CheckRolledOut(ctx, c, client.ObjectKey{Namespace: Namespace, Name: Name}, "the pod of "+Name)
		},
	}
	registration := apply.Stage{
		Name:  "clusters-handed-over",
		Title: "The site's clusters are handed over",
		Fact:  "every cluster of the site is a Provisioning",
		Why:   "From here on the operator owns the clusters, and nothing of the appliance waits for them.",
		Owner: siteOwner,
		Objects: func() ([]client.Object, error) {
			var all []client.Object
			for _, p := range clusters() {
				all = append(all, &p)
			}
			return all, nil
		},
		API:       api,
		Doing:     "creating Provisionings",
		StaleOnly: true,
	}
	return []bringup.Stage{operator.Bringup(), registration.Bringup()}
}

// Owners are whose uploads the nodes of clusters get.
type Owners struct {
	Names []string              // each once, sorted
	At    map[netip.Addr]string // by the address of a node
}

// OwnersOf are those of Provisionings.
func OwnersOf(provisionings []v1alpha1.Provisioning) Owners {
	owners := Owners{At: map[netip.Addr]string{}}
	for i := range provisionings {
		p := &provisionings[i]
		owner := v1alpha1.OwnerOf(p)
		owners.Names = append(owners.Names, owner)
		for _, n := range p.Status.Nodes {
			// One that waits has no host of its own yet: its address may be that of another's node.
			if addr, err := netip.ParseAddr(n.Address); err == nil && n.State != v1alpha1.NodeWaiting {
				owners.At[addr] = owner
			}
		}
	}

	slices.Sort(owners.Names)
	owners.Names = slices.Compact(owners.Names)
	return owners
}

// ListProvisionings reads all of them.
func ListProvisionings(ctx context.Context, c client.Reader) ([]v1alpha1.Provisioning, error) {
	var list v1alpha1.ProvisioningList
	if err := c.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list Provisionings: %w", err)
	}
	return list.Items, nil
}

// ListNodeUpdates reads all of them.
func ListNodeUpdates(ctx context.Context, c client.Reader) ([]v1alpha1.NodeUpdate, error) {
	var list v1alpha1.NodeUpdateList
	if err := c.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list NodeUpdates: %w", err)
	}
	return list.Items, nil
}

// StatusOf is how the cluster of each Provisioning stands, for the appliance's status, with its NodeUpdates. The hosts
// tell what clusters left on them.
func StatusOf(
	provisionings []v1alpha1.Provisioning, updates []v1alpha1.NodeUpdate, hosts []metal3api.BareMetalHost,
) []status.Cluster {
	all := make([]status.Cluster, 0, len(provisionings))
	for i := range provisionings {
		p := &provisionings[i]
		s := status.Cluster{
			Name:      v1alpha1.ClusterOf(p),
			State:     stateOf(p.Status.Phase),
			Percent:   int(p.Status.Percent),
			Nodes:     p.Status.NodesReady,
			Warnings:  p.Status.Warnings,
			Leftovers: listLeftovers(v1alpha1.ClusterOf(p), hosts),
			Updates:   listUpdates(p, updates),
			Namespace: p.Namespace,
			Kind:      status.KindProvisioning,
		}
		s.Checks, s.Checked = listChecks(p.Status.Checks)
		if p.Status.Job != nil {
			s.Log = p.Status.Job.Log
		}
		switch p.Status.Phase {
		case v1alpha1.PhaseRefused, v1alpha1.PhaseFailed:
			s.Error = p.Status.Message
		default:
			s.Text = p.Status.Message
		}

		for _, n := range p.Status.Nodes {
			s.Members = append(s.Members, status.ClusterNode{
				Name:    n.Name,
				Roles:   n.Roles,
				Host:    n.Host,
				Address: n.Address,
				State:   strings.ToLower(n.State),
				Reason:  n.Reason,
			})
		}

		all = append(all, s)
	}

	return all
}

// listChecks are those of the last verification, and when that was.
func listChecks(checks []v1alpha1.CheckStatus) (all []status.Check, at time.Time) {
	for _, c := range checks {
		s := status.Check{Name: c.Name, State: status.CheckFailed, Text: c.Message}
		if c.Outcome == v1alpha1.CheckPassed {
			s.State = status.CheckOK
		}
		all = append(all, s)
		at = c.Time.Time
	}
	return all, at
}

// listUpdates are the NodeUpdates of a cluster: those of its own namespace.
func listUpdates(p *v1alpha1.Provisioning, updates []v1alpha1.NodeUpdate) []status.NodeUpdate {
	var all []status.NodeUpdate
	for i := range updates {
		u := &updates[i]
		if u.Namespace != p.Namespace || v1alpha1.ClusterOf(u) != v1alpha1.ClusterOf(p) {
			continue
		}
		s := status.NodeUpdate{
			Name:    u.Namespace + "/" + u.Name,
			State:   strings.ToLower(cmp.Or(u.Status.Phase, "new")),
			Nodes:   u.Status.NodesReady,
			Text:    u.Status.Message,
			Paused:  u.Spec.Paused,
			Workers: max(1, int(u.Spec.MaxUnavailable)),
			Reboot:  cmp.Or(u.Spec.Reboot, v1alpha1.RebootIfRequired),
			Members: listUpdatedNodes(u.Status.Nodes),
		}
		if w := u.Spec.Window; w != nil {
			s.Window = &status.UpdateWindow{Days: w.Days, Start: w.Start, Hours: int(w.Hours)}
		}
		all = append(all, s)
	}
	return all
}

func listUpdatedNodes(nodes []v1alpha1.UpdatedNode) (all []status.UpdatedNode) {
	for _, n := range nodes {
		s := status.UpdatedNode{Name: n.Name, State: n.Phase, Text: n.Message, Version: n.Version, Changes: int(n.Changes)}
		if n.Updated != nil {
			s.Updated = n.Updated.Time
		}
		all = append(all, s)
	}
	return all
}

func listLeftovers(cluster string, hosts []metal3api.BareMetalHost) []status.Leftover {
	pointers := func(yield func(*metal3api.BareMetalHost) bool) {
		for i := range hosts {
			if !yield(&hosts[i]) {
				return
			}
		}
	}
	var all []status.Leftover
	for _, l := range operator.FindLeftovers(cluster, pointers) {
		all = append(all, status.Leftover{Host: l.Host, Text: l.Sentence()})
	}

	return all
}
