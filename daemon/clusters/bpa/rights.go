package bpa

import (
	"context"
	"fmt"
	"maps"
	"slices"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/operator"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/rights"
)

// account is the operator's.
var account = rights.Account{Namespace: Namespace, Name: Name}

// ownersRole is what the operator may do in namespaces that have Provisionings.
const ownersRole = Name + "-owners"

// hostsRole is what the operator may do in namespaces that have hosts.
const hostsRole = Name + "-hosts"

// rights are the operator's rights as objects.
func (o Operator) rights() []client.Object {
	r := operator.NewRights()
	return []client.Object{
		rights.NewClusterRole(Name, r.Everywhere),
		account.BindEverywhere(Name),
		rights.NewRole(Namespace, Name, r.Own), account.Bind(Namespace, "Role", Name),
		rights.NewRole(v1alpha1.SiteNamespace, Name, r.Site), account.Bind(v1alpha1.SiteNamespace, "Role", Name),
		rights.NewClusterRole(ownersRole, r.Owners), account.Bind(v1alpha1.SiteNamespace, "ClusterRole", ownersRole),
	}
}

// HostRights are the operator's rights to read what hosts' installed systems were given, as a set of its own: they change
// whenever a host comes or goes.
func HostRights(hosts []metal3api.BareMetalHost) (apply.Set, error) {
	var objects []client.Object
	secrets := hostSecrets(hosts)
	for _, namespace := range slices.Sorted(maps.Keys(secrets)) {
		rules := operator.NewRights().Hosts
		for i := range rules {
			rules[i].ResourceNames = secrets[namespace]
		}
		role := rights.NewRole(namespace, hostsRole, rules)
		objects = append(objects, role, account.Bind(namespace, "Role", hostsRole))
	}
	return apply.New(owner, objects...)
}

// GrantNamespaces gives the operator its rights in each namespace that has a Provisioning.
func GrantNamespaces(ctx context.Context, c client.Client, provisionings []v1alpha1.Provisioning) error {
	var namespaces []string
	for _, p := range provisionings {
		if p.Namespace != v1alpha1.SiteNamespace {
			namespaces = append(namespaces, p.Namespace)
		}
	}
	return account.Grant(ctx, c, owner, ownersRole, namespaces)
}

// RemoveFormerKeys removes the copies of the appliance's log-in to nodes that operators of before put next to
// Provisionings, and the one that they had themselves: it is in the daemon alone (vault.Keys.ServeAgent).
func RemoveFormerKeys(ctx context.Context, c client.Client) error {
	var list corev1.SecretList
	if err := c.List(ctx, &list, client.MatchingFields{"metadata.name": kud.SSHSecret}); err != nil {
		return fmt.Errorf("list former log-ins: %w", err)
	}

	for i := range list.Items {
		s := &list.Items[i]
		if s.Namespace != Namespace && s.Labels[operator.LabelManaged] != operator.FieldManager {
			continue // somebody's own
		}
		if err := c.Delete(ctx, s); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove former log-in %s/%s: %w", s.Namespace, s.Name, err)
		}
	}

	return nil
}

// hostSecrets are the Secrets with what hosts' installed systems were given: addresses and host keys. By namespace, sorted.
func hostSecrets(hosts []metal3api.BareMetalHost) map[string][]string {
	names := map[string][]string{}
	for i := range hosts {
		for _, ref := range []*corev1.SecretReference{hosts[i].Spec.UserData, hosts[i].Spec.NetworkData} {
			if ref == nil || ref.Name == "" || ref.Namespace != "" && ref.Namespace != hosts[i].Namespace {
				continue // a host lends nobody rights in another namespace
			}
			names[hosts[i].Namespace] = append(names[hosts[i].Namespace], ref.Name)
		}
	}
	for namespace, all := range names {
		slices.Sort(all)
		names[namespace] = slices.Compact(all)
	}
	return names
}
