package tenants

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/daemon/addons/tenants/v1alpha1"
)

func claimant(name string, age int, namespaces ...string) v1alpha1.Tenant {
	t := v1alpha1.Tenant{}
	t.Name, t.Spec.Namespaces = name, namespaces
	t.CreationTimestamp = metav1.NewTime(time.Unix(int64(1_000_000-age), 0))
	return t
}

func namespace(labels, annotations map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dev", Labels: labels, Annotations: annotations}}
}

func TestWhoGetsANamespace(t *testing.T) {
	now := metav1.Now()
	of := func(tenant string) map[string]string { return map[string]string{v1alpha1.LabelTenant: tenant} }
	adopt := func(tenant string) map[string]string { return map[string]string{v1alpha1.AnnotationAdopt: tenant} }
	ending := func(n *corev1.Namespace) *corev1.Namespace { n.DeletionTimestamp = &now; return n }
	alpha, beta := claimant("alpha", 1, "dev"), claimant("beta", 2, "dev") // beta is older
	twin := claimant("zeta", 1, "dev")
	leaving := claimant("beta", 2, "dev")
	leaving.DeletionTimestamp = &now

	for name, c := range map[string]struct {
		is     *corev1.Namespace
		others []v1alpha1.Tenant
		want   Verdict
		reason string
	}{
		"a missing one is made":                        {nil, nil, Create, ""},
		"its own":                                      {namespace(of("alpha"), nil), nil, Hold, ""},
		"its own, which an older one names too":        {namespace(of("alpha"), nil), []v1alpha1.Tenant{beta}, Hold, ""},
		"its own, which is being deleted":              {ending(namespace(of("alpha"), nil)), nil, Await, "NamespaceTerminating"},
		"another's":                                    {namespace(of("beta"), nil), []v1alpha1.Tenant{beta}, Refuse, "NamespaceTaken"},
		"another's, with consent":                      {namespace(of("beta"), adopt("alpha")), []v1alpha1.Tenant{beta}, Refuse, "NamespaceTaken"},
		"one that another is still to release":         {namespace(of("beta"), nil), []v1alpha1.Tenant{claimant("beta", 2)}, Refuse, "NamespaceTaken"},
		"a missing one that an older one names":        {nil, []v1alpha1.Tenant{beta}, Refuse, "NamespaceTaken"},
		"a missing one that a younger one names":       {nil, []v1alpha1.Tenant{claimant("beta", 0, "dev")}, Create, ""},
		"a missing one that one of equal age names":    {nil, []v1alpha1.Tenant{twin}, Create, ""},
		"a missing one that one names that is leaving": {nil, []v1alpha1.Tenant{leaving}, Create, ""},
		"nobody's":                                      {namespace(nil, nil), nil, Refuse, "NamespaceForeign"},
		"nobody's, with consent":                        {namespace(nil, adopt("alpha")), nil, Adopt, ""},
		"nobody's, with consent to another":             {namespace(nil, adopt("beta")), nil, Refuse, "NamespaceForeign"},
		"nobody's, which is being deleted":              {ending(namespace(nil, nil)), nil, Await, "NamespaceTerminating"},
		"of a Tenant that is no more":                   {namespace(of("gone"), nil), nil, Refuse, "NamespaceForeign"},
		"of a Tenant that is no more, with consent":     {namespace(of("gone"), adopt("alpha")), nil, Adopt, ""},
		"with consent, but an older one names it first": {namespace(nil, adopt("alpha")), []v1alpha1.Tenant{beta}, Refuse, "NamespaceTaken"},
	} {
		t.Run(name, func(t *testing.T) {
			got := DecideClaim(&alpha, "dev", c.is, append(c.others, alpha))
			assert.Equal(t, c.want, got.Verdict)
			assert.Equal(t, c.reason, got.Reason)
			assert.Equal(t, c.reason == "", got.Message == "", got.Message)
			t.Log(got.Message)
		})
	}
}

func TestWhatATenantReleases(t *testing.T) {
	named := func(name, tenant string) corev1.Namespace {
		n := namespace(map[string]string{v1alpha1.LabelTenant: tenant}, nil)
		n.Name = name
		return *n
	}
	all := []corev1.Namespace{named("dev", "alpha"), named("old", "alpha"), named("other", "beta"), named("free", "")}
	names := func(all []corev1.Namespace) (names []string) {
		for _, n := range all {
			names = append(names, n.Name)
		}
		return names
	}

	alpha := claimant("alpha", 1, "dev", "other", "free")
	assert.Equal(t, []string{"old"}, names(listReleases(&alpha, all)))
	now := metav1.Now()
	alpha.DeletionTimestamp = &now
	assert.Equal(t, []string{"dev", "old"}, names(listReleases(&alpha, all)))
}
