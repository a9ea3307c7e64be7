// Package tenants is the add-on of that name: it shares a workload cluster between tenants. A Tenant gets namespaces, and
// in each of them roles, a quota, limits and network isolation. What it should have is decided by pure functions; the
// controller applies that, repairs what others change, and takes it away again.
package tenants

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/addons/tenants/v1alpha1"
)

// Names of what a tenant has in each of its namespaces.
const (
	ownersName    = "tenant-owners"
	viewersName   = "tenant-viewers"
	quotaName     = "tenant-quota"
	limitsName    = "tenant-limits"
	isolationName = "tenant-isolation"
)

// The ClusterRoles of tenants (https://kubernetes.io/docs/reference/access-authn-authz/rbac/#user-facing-roles). Neither
// may write ResourceQuotas and LimitRanges, nor change a namespace.
const (
	ownersRole  = "admin"
	viewersRole = "view"
)

// labelPodSecurity is Pod Security admission's
// (https://kubernetes.io/docs/concepts/security/pod-security-admission/).
const (
	labelPodSecurity   = "pod-security.kubernetes.io/enforce"
	defaultPodSecurity = "baseline"
)

// NamespaceLabels are those that a Tenant's namespaces have.
func NamespaceLabels(t *v1alpha1.Tenant) map[string]string {
	level := t.Spec.PodSecurity
	if level == "" {
		level = defaultPodSecurity
	}
	isolated := "false"
	if t.Spec.IsIsolated() {
		isolated = "true"
	}

	return map[string]string{
		v1alpha1.LabelTenant:   t.Name,
		v1alpha1.LabelIsolated: isolated,
		labelPodSecurity:       level,
	}
}

// Render returns what a Tenant has in one of its namespaces, in the order of application: what bounds it, then who may
// use it.
func Render(t *v1alpha1.Tenant, namespace string) []client.Object {
	var all []client.Object
	if t.Spec.IsIsolated() {
		all = append(all, newIsolation(t, namespace))
	}
	if t.Spec.Quota != nil && len(t.Spec.Quota.Hard) > 0 {
		all = append(all, newQuota(t, namespace))
	}
	if items := limitItems(t.Spec); len(items) > 0 {
		all = append(all, &corev1.LimitRange{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "LimitRange"},
			ObjectMeta: newMeta(t, namespace, limitsName),
			Spec:       corev1.LimitRangeSpec{Limits: items},
		})
	}
	if len(t.Spec.Owners) > 0 {
		all = append(all, newBinding(t, namespace, ownersName, ownersRole, t.Spec.Owners))
	}
	if len(t.Spec.Viewers) > 0 {
		all = append(all, newBinding(t, namespace, viewersName, viewersRole, t.Spec.Viewers))
	}
	return all
}

func newMeta(t *v1alpha1.Tenant, namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace,
		Name:      name,
		Labels:    map[string]string{v1alpha1.LabelTenant: t.Name},
	}
}

func newBinding(t *v1alpha1.Tenant, namespace, name, role string, subjects []rbacv1.Subject) *rbacv1.RoleBinding {
	subjects = slices.Clone(subjects)
	for i := range subjects {
		if subjects[i].Kind != rbacv1.ServiceAccountKind {
			subjects[i].APIGroup = rbacv1.GroupName // the default of the API, which would be drift otherwise
		}
	}

	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: newMeta(t, namespace, name),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   subjects,
	}
}

func newQuota(t *v1alpha1.Tenant, namespace string) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ResourceQuota"},
		ObjectMeta: newMeta(t, namespace, quotaName),
		Spec:       corev1.ResourceQuotaSpec{Hard: t.Spec.Quota.Hard.DeepCopy()},
	}
}

func newIsolation(t *v1alpha1.Tenant, namespace string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: newMeta(t, namespace, isolationName),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{}, // all pods
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: ingressPeers(t)}},
			Egress: []networkingv1.NetworkPolicyEgressRule{
				{To: egressPeers(t)},
				{To: dnsPeers(), Ports: dnsPorts()},
			},
		},
	}
}
