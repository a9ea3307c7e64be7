package operator

import (
	rbacv1 "k8s.io/api/rbac/v1"
)

// Rights are what the operator asks of the API, by where. A test holds them to what its code calls.
type Rights struct {
	Everywhere []rbacv1.PolicyRule
	Own        []rbacv1.PolicyRule // in its own namespace
	Site       []rbacv1.PolicyRule // in v1alpha1.SiteNamespace
	Owners     []rbacv1.PolicyRule // in namespaces that have Provisionings
	Hosts      []rbacv1.PolicyRule // in namespaces of hosts, each Secret by its name
}

// NewRights are those of an operator. Secrets it reads only next to Provisionings, where owners put theirs, in its own
// namespace, and of hosts what their installed systems were given: no BMC's password, and no other part's token.
func NewRights() Rights {
	rule := func(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
	}
	return Rights{
		Everywhere: []rbacv1.PolicyRule{
			rule("bpa.akraino.org", []string{"provisionings"}, "get", "list", "watch", "patch"),
			rule("bpa.akraino.org", []string{"softwares"}, "get", "list", "watch"),
			rule("bpa.akraino.org", []string{"nodeupdates"}, "get", "list", "watch", "patch"),
			rule("bpa.akraino.org", []string{"provisionings/status", "softwares/status", "nodeupdates/status"}, "patch"),
			rule("bpa.akraino.org", []string{"provisionings/finalizers"}, "update"),
			rule("metal3.io", []string{"baremetalhosts"}, "list", "watch", "patch"),
			rule("firstlight.dev", []string{"launches"}, "list"), // how far the nodes of the site are
			rule("", []string{"pods"}, "list"),                   // virtual machines of virtlet
			rule("events.k8s.io", []string{"events"}, "create", "patch"),
		},
		Own: []rbacv1.PolicyRule{
			rule("batch", []string{"jobs"}, "get", "list", "watch", "create", "delete"),
			rule("", []string{"pods"}, "delete"),
			rule("", []string{"pods/log"}, "get"),
			rule("", []string{"secrets"}, "get", "create", "patch", "delete"),
			rule("", []string{"configmaps"}, "get", "create", "patch"),
			// The lock that keeps a second operator waiting, and who has it.
			rule("coordination.k8s.io", []string{"leases"}, "get", "create", "update", "patch"),
			rule("", []string{"events"}, "create", "patch"),
		},
		Site: []rbacv1.PolicyRule{
			rule("bpa.akraino.org", []string{"provisionings"}, "create"), // proposed ones
		},
		Owners: []rbacv1.PolicyRule{
			rule("", []string{"secrets", "configmaps"}, "get", "create", "patch", "delete"),
		},
		Hosts: []rbacv1.PolicyRule{
			rule("", []string{"secrets"}, "get"),
		},
	}
}
