package tenants

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/daemon/addons/tenants/v1alpha1"
)

// newTenant is the Tenant alpha with a spec in YAML.
func newTenant(t *testing.T, spec string) *v1alpha1.Tenant {
	t.Helper()
	tenant := &v1alpha1.Tenant{}
	tenant.Name = "alpha"
	require.NoError(t, yaml.UnmarshalStrict([]byte(spec), &tenant.Spec))
	return tenant
}

func TestRenderHasWhatIsAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		spec string
		want []string
	}{
		"nothing but isolation": {`{namespaces: [dev]}`, []string{"NetworkPolicy tenant-isolation"}},
		"nothing":               {`{namespaces: [dev], isolation: false}`, nil},
		"an empty quota":        {`{isolation: false, quota: {hard: {}}}`, nil},
		"a quota of pods needs no defaults": {
			`{isolation: false, quota: {hard: {pods: "3"}}}`, []string{"ResourceQuota tenant-quota"},
		},
		"limits alone": {
			`{isolation: false, limits: [{type: Pod, max: {cpu: "1"}}]}`, []string{"LimitRange tenant-limits"},
		},
		"who may use it comes last": {
			`{owners: [{kind: User, name: ann}], viewers: [{kind: Group, name: g}], quota: {hard: {requests.cpu: "4"}}}`,
			[]string{
				"NetworkPolicy tenant-isolation", "ResourceQuota tenant-quota", "LimitRange tenant-limits",
				"RoleBinding tenant-owners", "RoleBinding tenant-viewers",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, o := range Render(newTenant(t, c.spec), "dev") {
				got = append(got, o.GetObjectKind().GroupVersionKind().Kind+" "+o.GetName())
				assert.Equal(t, "dev", o.GetNamespace())
				assert.Equal(t, map[string]string{"tenant.akraino.org/name": "alpha"}, o.GetLabels())
			}
			assert.Equal(t, c.want, got)
		})
	}
}

func TestRolesAreKubernetesOwn(t *testing.T) {
	all := Render(newTenant(t, `{isolation: false, owners: [{kind: User, name: ann}, {kind: ServiceAccount, name: ci,
namespace: dev}], viewers: [{kind: Group, name: auditors}]}`), "dev")
	require.Len(t, all, 2)

	owners, viewers := all[0].(*rbacv1.RoleBinding), all[1].(*rbacv1.RoleBinding)
	assert.Equal(t, "admin", owners.RoleRef.Name)
	assert.Equal(t, []rbacv1.Subject{
		{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: "ann"},
		{Kind: "ServiceAccount", Name: "ci", Namespace: "dev"},
	}, owners.Subjects)
	assert.Equal(t, "view", viewers.RoleRef.Name)
}

func TestNamespaceLabels(t *testing.T) {
	assert.Equal(t, map[string]string{
		"tenant.akraino.org/name":            "alpha",
		"tenant.akraino.org/isolated":        "true",
		"pod-security.kubernetes.io/enforce": "baseline",
	}, NamespaceLabels(newTenant(t, `{}`)))
	assert.Equal(t, map[string]string{
		"tenant.akraino.org/name":            "alpha",
		"tenant.akraino.org/isolated":        "false",
		"pod-security.kubernetes.io/enforce": "restricted",
	}, NamespaceLabels(newTenant(t, `{isolation: false, podSecurity: restricted}`)))
}

func TestDefaultsFollowTheQuota(t *testing.T) {
	for name, c := range map[string]struct{ spec, want string }{
		"requests and limits": {
			`{quota: {hard: {requests.cpu: "4", requests.memory: 8Gi, limits.cpu: "8", limits.memory: 16Gi}}}`,
			`[{type: Container, default: {cpu: 500m, memory: 512Mi}, defaultRequest: {cpu: 100m, memory: 128Mi}}]`,
		},
		"the short names": {
			`{quota: {hard: {cpu: "4", memory: 8Gi}}}`,
			`[{type: Container, defaultRequest: {cpu: 100m, memory: 128Mi}}]`,
		},
		"no more than the quota": {
			`{quota: {hard: {cpu: "1", requests.cpu: 50m, limits.memory: 64Mi, requests.memory: 1Gi}}}`,
			`[{type: Container, default: {memory: 64Mi}, defaultRequest: {cpu: 50m, memory: 64Mi}}]`,
		},
		"its own come first": {
			`{limits: [{type: Container, default: {cpu: "1"}}], quota: {hard: {requests.cpu: "4", requests.memory: 8Gi}}}`,
			`[{type: Container, default: {cpu: "1"}}]`,
		},
		"those of pods are besides": {
			`{limits: [{type: Pod, max: {cpu: "1"}}], quota: {hard: {requests.cpu: "4"}}}`,
			`[{type: Pod, max: {cpu: "1"}}, {type: Container, defaultRequest: {cpu: 100m}}]`,
		},
		"pods are no amount": {`{quota: {hard: {pods: "4"}}}`, `[]`},
	} {
		t.Run(name, func(t *testing.T) {
			var want []corev1.LimitRangeItem
			require.NoError(t, yaml.UnmarshalStrict([]byte(c.want), &want))
			got, err := yaml.Marshal(limitItems(newTenant(t, c.spec).Spec))
			require.NoError(t, err)
			text, err := yaml.Marshal(want)
			require.NoError(t, err)
			if len(want) == 0 {
				text = []byte("null\n")
			}
			if string(got) == "[]\n" {
				got = []byte("null\n")
			}
			assert.Equal(t, string(text), string(got))
		})
	}
}

func TestIsolationHasItsExceptions(t *testing.T) {
	render := func(spec string) networkingv1.NetworkPolicySpec {
		all := Render(newTenant(t, spec), "dev")
		require.Len(t, all, 1)
		return all[0].(*networkingv1.NetworkPolicy).Spec
	}
	peers := func(all []networkingv1.NetworkPolicyPeer) (names []string) {
		for _, p := range all {
			switch {
			case p.IPBlock != nil:
				names = append(names, p.IPBlock.CIDR)
			case p.PodSelector != nil:
				names = append(names, fmt.Sprint(p.NamespaceSelector.MatchExpressions[0].Values, p.PodSelector.MatchLabels))
			case len(p.NamespaceSelector.MatchLabels) > 0:
				names = append(names, fmt.Sprint(p.NamespaceSelector.MatchLabels))
			default:
				names = append(names, fmt.Sprint(p.NamespaceSelector.MatchExpressions[0].Values))
			}
		}
		return names
	}
	const own = "map[tenant.akraino.org/name:alpha]"

	closed := render(`{}`)
	assert.Empty(t, closed.PodSelector.MatchLabels, "it holds for some pods alone")
	assert.Len(t, closed.PolicyTypes, 2)
	require.Len(t, closed.Ingress, 1)
	require.Len(t, closed.Egress, 2)
	assert.Equal(t, []string{own}, peers(closed.Ingress[0].From))
	assert.Equal(t, []string{own}, peers(closed.Egress[0].To))
	assert.Empty(t, closed.Egress[0].Ports)
	assert.Equal(t, []string{"[kube-system] map[k8s-app:kube-dns]"}, peers(closed.Egress[1].To))
	require.Len(t, closed.Egress[1].Ports, 2)
	for i, protocol := range []corev1.Protocol{"UDP", "TCP"} {
		assert.Equal(t, protocol, *closed.Egress[1].Ports[i].Protocol)
		assert.Equal(t, 53, closed.Egress[1].Ports[i].Port.IntValue())
	}

	open := render(`{ingress: {namespaces: [ingress], cidrs: [192.0.2.7/24]}, egress: {internet: true, cidrs: [10.9.0.0/16]}}`)
	assert.Equal(t, []string{own, "[ingress]", "192.0.2.0/24"}, peers(open.Ingress[0].From))
	assert.Equal(t, []string{own, "0.0.0.0/0", "::/0", "10.9.0.0/16"}, peers(open.Egress[0].To))
	assert.Contains(t, open.Egress[0].To[1].IPBlock.Except, "10.0.0.0/8", "the way outside is one into the cluster")
}
