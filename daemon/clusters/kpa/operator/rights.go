package operator

import (
	rbacv1 "k8s.io/api/rbac/v1"
)

// NewRights are what the operator asks of the API: everywhere, in its own namespace, and in namespaces that have
// Components. Secrets it reads next to Components alone. On the appliance itself it installs nothing as itself, but as
// the ServiceAccount of the Component's namespace that has the one name for that.
func NewRights() (everywhere, own, owners []rbacv1.PolicyRule) {
	rule := func(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
	}
	impersonate := rule("", []string{"serviceaccounts"}, "impersonate")
	impersonate.ResourceNames = []string{ServiceAccount}
	everywhere = []rbacv1.PolicyRule{
		rule("kpa.akraino.org", []string{"components"}, "get", "list", "watch", "update"),
		rule("kpa.akraino.org", []string{"components/status"}, "update"),
		rule("kpa.akraino.org", []string{"components/finalizers"}, "update"),
		rule("bpa.akraino.org", []string{"provisionings"}, "get", "list", "watch"),
		rule("cluster.x-k8s.io", []string{"clusters"}, "list"),
		rule("events.k8s.io", []string{"events"}, "create", "patch"),
		impersonate,
	}
	own = []rbacv1.PolicyRule{
		rule("coordination.k8s.io", []string{"leases"}, "get", "create", "update", "patch"),
		rule("", []string{"events"}, "create", "patch"),
	}
	owners = []rbacv1.PolicyRule{
		rule("", []string{"secrets", "configmaps"}, "get"),
	}
	return everywhere, own, owners
}
