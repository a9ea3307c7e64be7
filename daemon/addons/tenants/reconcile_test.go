package tenants

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/daemon/addons/tenants/v1alpha1"
)

// cluster is one whose API ends after so many writes, as if the controller were killed there.
type cluster struct {
	client.WithWatch
	t      *testing.T
	writes []string // what was written, in order
	left   int      // how many more are done; negative: all
}

// oneScheme has few kinds: the client of tests asks for all of them at each write.
var oneScheme = sync.OnceValues(func() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	var failed []error
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, rbacv1.AddToScheme, networkingv1.AddToScheme, appsv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		failed = append(failed, add(s))
	}
	return s, errors.Join(failed...)
})

var errKilled = errors.New("killed")

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	scheme, err := oneScheme()
	require.NoError(t, err)
	c := &cluster{t: t, left: -1}
	c.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.Tenant{}).WithReturnManagedFields().
		WithTypeConverters(managedfields.NewDeducedTypeConverter()). // the other one gives NetworkPolicies a status
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, to client.WithWatch, o client.Object, options ...client.CreateOption) error {
				return c.write("create", o, func() error { return to.Create(ctx, o, options...) })
			},
			Delete: func(ctx context.Context, to client.WithWatch, o client.Object, options ...client.DeleteOption) error {
				return c.write("delete", o, func() error { return to.Delete(ctx, o, options...) })
			},
			Patch: func(
				ctx context.Context, to client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption,
			) error {
				return c.write("patch", o, func() error { return to.Patch(ctx, o, p, options...) })
			},
			Apply: func(
				ctx context.Context, to client.WithWatch, a runtime.ApplyConfiguration, options ...client.ApplyOption,
			) error {
				o, ok := a.(interface {
					GetName() string
					GetNamespace() string
					GetKind() string
				})
				require.True(t, ok)
				return c.do(fmt.Sprintf("apply %s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName()), func() error {
					return to.Apply(ctx, a, options...)
				})
			},
			SubResourcePatch: func(
				ctx context.Context, to client.Client, name string, o client.Object, p client.Patch,
				options ...client.SubResourcePatchOption,
			) error {
				if name == "scale" { // the client of tests has none for patches
					return nil
				}
				return c.write(name, o, func() error { return to.SubResource(name).Patch(ctx, o, p, options...) })
			},
		}).Build()
	return c
}

func (c *cluster) write(verb string, o client.Object, do func() error) error {
	kind := fmt.Sprintf("%T", o)
	kind = kind[slices.Index([]byte(kind), '.')+1:]
	return c.do(fmt.Sprintf("%s %s %s/%s", verb, kind, o.GetNamespace(), o.GetName()), do)
}

func (c *cluster) do(what string, do func() error) error {
	if c.left == 0 {
		return errKilled
	}
	c.left--
	c.writes = append(c.writes, what)
	return do()
}

// reconcile lets a new controller do one round.
func (c *cluster) reconcile(name string) error {
	r := &Tenants{
		Client: c, Reader: c, Recorder: events.NewFakeRecorder(100), Log: slog.New(slog.DiscardHandler),
	}
	_, err := r.Reconcile(c.t.Context(), requestFor(name))
	return err
}

func (c *cluster) reconciled(names ...string) {
	c.t.Helper()
	for _, name := range names {
		require.NoError(c.t, c.reconcile(name))
	}
}

func (c *cluster) tenant(name string) *v1alpha1.Tenant {
	c.t.Helper()
	t := &v1alpha1.Tenant{}
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKey{Name: name}, t))
	return t
}

// edit changes the spec of a Tenant.
func (c *cluster) edit(name, spec string) {
	c.t.Helper()
	t := c.tenant(name)
	t.Spec = v1alpha1.TenantSpec{}
	require.NoError(c.t, yaml.UnmarshalStrict([]byte(spec), &t.Spec))
	t.Generation++
	require.NoError(c.t, c.Update(c.t.Context(), t))
}

func (c *cluster) deleteTenant(name string) {
	c.t.Helper()
	require.NoError(c.t, c.Delete(c.t.Context(), c.tenant(name)))
	c.writes = nil
}

func (c *cluster) namespace(name string) *corev1.Namespace {
	c.t.Helper()
	n := &corev1.Namespace{}
	err := c.Get(c.t.Context(), client.ObjectKey{Name: name}, n)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(c.t, err)
	return n
}

// own are the objects of tenants in a namespace.
func (c *cluster) own(namespace string) []string {
	c.t.Helper()
	all, err := listOwn(c.t.Context(), c, namespace)
	require.NoError(c.t, err)
	var names []string
	for _, o := range all {
		names = append(names, describe(o))
	}
	return names
}

func (c *cluster) condition(name string) metav1.Condition {
	c.t.Helper()
	all := c.tenant(name).Status.Conditions
	require.Len(c.t, all, 1)
	c.t.Logf("%s: %s %s: %s", name, all[0].Status, all[0].Reason, all[0].Message)
	return all[0]
}

func makeTenant(t *testing.T, name string, age int, spec string) *v1alpha1.Tenant {
	t.Helper()
	tenant := newTenant(t, spec)
	tenant.Name, tenant.Generation = name, 1
	tenant.CreationTimestamp = metav1.NewTime(time.Unix(int64(1_000_000-age), 0))
	return tenant
}

func makeNamespace(name string, annotations map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "1", Annotations: annotations}}
}

const full = `{namespaces: [dev, prod], owners: [{kind: User, name: ann}], viewers: [{kind: Group, name: g}],
quota: {hard: {requests.cpu: "4"}}`

var fullObjects = func(namespace string) []string {
	return []string{
		"RoleBinding " + namespace + "/tenant-owners", "RoleBinding " + namespace + "/tenant-viewers",
		"LimitRange " + namespace + "/tenant-limits", "ResourceQuota " + namespace + "/tenant-quota",
		"NetworkPolicy " + namespace + "/tenant-isolation",
	}
}

func TestATenantGetsWhatItAsksFor(t *testing.T) {
	c := newCluster(t, makeTenant(t, "alpha", 1, full+`}`))
	c.reconciled("alpha")
	assert.Equal(t, []string{
		"patch Tenant /alpha", // the finalizer, before there is anything to finalize
		"create Namespace /dev",
		"apply NetworkPolicy dev/tenant-isolation",
		"apply ResourceQuota dev/tenant-quota",
		"apply LimitRange dev/tenant-limits",
		"apply RoleBinding dev/tenant-owners",
		"apply RoleBinding dev/tenant-viewers",
	}, c.writes[:7])
	assert.Equal(t, fullObjects("prod"), c.own("prod"))
	ready := c.condition("alpha")
	assert.Equal(t, metav1.ConditionTrue, ready.Status)
	assert.Equal(t, int64(1), ready.ObservedGeneration)
	assert.Equal(t, []string{"dev", "prod"}, c.tenant("alpha").Status.Namespaces)
	assert.Equal(t, int64(1), c.tenant("alpha").Status.ObservedGeneration)

	// What it no longer gives goes.
	c.edit("alpha", `{namespaces: [dev, prod], isolation: false, viewers: [{kind: User, name: bob}]}`)
	c.reconciled("alpha")
	assert.Equal(t, []string{"RoleBinding dev/tenant-viewers"}, c.own("dev"))
	assert.Equal(t, "false", c.namespace("dev").Labels[v1alpha1.LabelIsolated])
}

func TestDriftIsRepaired(t *testing.T) {
	c := newCluster(t, makeTenant(t, "alpha", 1, full+`}`))
	c.reconciled("alpha")
	ctx := t.Context()

	owners := &rbacv1.RoleBinding{}
	require.NoError(t, c.Get(ctx, client.ObjectKey{Namespace: "dev", Name: "tenant-owners"}, owners))
	owners.Subjects = append(owners.Subjects, rbacv1.Subject{Kind: "User", Name: "mallory"})
	delete(owners.Labels, v1alpha1.LabelTenant)
	require.NoError(t, c.Update(ctx, owners))
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "dev", Name: "tenant-isolation"}}
	require.NoError(t, c.Delete(ctx, policy))
	n := c.namespace("dev")
	n.Labels[labelPodSecurity] = "privileged"
	require.NoError(t, c.Update(ctx, n))

	c.reconciled("alpha")
	require.NoError(t, c.Get(ctx, client.ObjectKey{Namespace: "dev", Name: "tenant-owners"}, owners))
	require.Len(t, owners.Subjects, 1)
	assert.Equal(t, "ann", owners.Subjects[0].Name)
	assert.Equal(t, fullObjects("dev"), c.own("dev"))
	assert.Equal(t, "baseline", c.namespace("dev").Labels[labelPodSecurity])
	assert.Equal(t, metav1.ConditionTrue, c.condition("alpha").Status)
}

func TestOneNamespaceHasOneTenant(t *testing.T) {
	c := newCluster(t,
		makeTenant(t, "old", 9, `{namespaces: [dev]}`),
		makeTenant(t, "young", 1, `{namespaces: [dev, own]}`),
	)
	c.reconciled("young", "old", "young")
	assert.Equal(t, "old", c.namespace("dev").Labels[v1alpha1.LabelTenant])
	assert.Equal(t, v1alpha1.ReasonTaken, c.condition("young").Reason)
	assert.Equal(t, []string{"own"}, c.tenant("young").Status.Namespaces, "one that it cannot have takes the others along")
	assert.Equal(t, metav1.ConditionTrue, c.condition("old").Status)

	// What was another's is given by consent alone.
	c.deleteTenant("old")
	c.reconciled("old", "young")
	assert.Equal(t, v1alpha1.ReasonForeign, c.condition("young").Reason)
	assert.NotContains(t, c.namespace("dev").Labels, v1alpha1.LabelTenant)
}

func TestWhatExistsIsTakenByConsentAlone(t *testing.T) {
	c := newCluster(t, makeNamespace("dev", map[string]string{"note": "x"}), makeTenant(t, "alpha", 1, `{namespaces: [dev]}`))
	c.reconciled("alpha")
	assert.Equal(t, v1alpha1.ReasonForeign, c.condition("alpha").Reason)
	assert.Empty(t, c.namespace("dev").Labels)
	assert.Empty(t, c.own("dev"))

	n := c.namespace("dev")
	n.Annotations[v1alpha1.AnnotationAdopt] = "alpha"
	require.NoError(t, c.Update(t.Context(), n))
	open := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "dev", Name: "open"}}
	require.NoError(t, c.Create(t.Context(), open))
	c.reconciled("alpha")
	assert.Equal(t, v1alpha1.ReasonOpen, c.condition("alpha").Reason)
	assert.Equal(t, "alpha", c.namespace("dev").Labels[v1alpha1.LabelTenant])

	require.NoError(t, c.Delete(t.Context(), open))
	c.reconciled("alpha")
	assert.Equal(t, metav1.ConditionTrue, c.condition("alpha").Status)

	c.deleteTenant("alpha")
	c.reconciled("alpha")
	assert.Equal(t, "x", c.namespace("dev").Annotations["note"], "what others noted is gone")
}

func TestAnObjectOfSomebodyElseStays(t *testing.T) {
	theirs := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "dev", Name: ownersName},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "edit"},
	}
	c := newCluster(t, theirs, makeNamespace("dev", map[string]string{v1alpha1.AnnotationAdopt: "alpha"}),
		makeTenant(t, "alpha", 1, full+`}`))
	c.reconciled("alpha")
	assert.Equal(t, v1alpha1.ReasonObject, c.condition("alpha").Reason)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs))
	assert.Equal(t, "edit", theirs.RoleRef.Name)
	assert.Equal(t, fullObjects("prod"), c.own("prod"))
}

// A controller that is killed after any of its writes, and another one that finds what it left.
func TestKilledAfterEveryWrite(t *testing.T) {
	retain, remove := full+`, reclaim: Retain}`, full+`, reclaim: Delete}`
	for name, c := range map[string]struct {
		from, to string // specs; to "" deletes the Tenant
		check    func(*testing.T, *cluster)
	}{
		"creation": {"", retain, func(t *testing.T, c *cluster) {
			for _, n := range []string{"dev", "prod"} {
				assert.Equal(t, fullObjects(n), c.own(n))
			}
		}},
		"a namespace is retained": {retain, `{namespaces: [prod]}`, func(t *testing.T, c *cluster) {
			checkRetained(t, c, "dev")
			assert.Len(t, c.own("prod"), 1)
		}},
		"a namespace is deleted": {retain, `{namespaces: [prod], reclaim: Delete}`, func(t *testing.T, c *cluster) {
			assert.Nil(t, c.namespace("dev"))
			assert.NotNil(t, c.namespace("prod"))
		}},
		"a Tenant is deleted, with Retain": {retain, "", func(t *testing.T, c *cluster) {
			checkRetained(t, c, "dev")
			checkRetained(t, c, "prod")
			checkGone(t, c)
		}},
		"a Tenant is deleted, with Delete": {remove, "", func(t *testing.T, c *cluster) {
			assert.Nil(t, c.namespace("dev"))
			assert.Nil(t, c.namespace("prod"))
			checkGone(t, c)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for n := 0; ; n++ {
				api := newCluster(t, makeTenant(t, "alpha", 1, `{namespaces: []}`))
				api.reconciled("alpha")
				if c.from != "" {
					api.edit("alpha", c.from)
					api.reconciled("alpha")
				}
				if c.to != "" {
					api.edit("alpha", c.to)
				} else {
					api.deleteTenant("alpha")
				}

				api.left = n
				err := api.reconcile("alpha")
				api.left = -1
				for range 3 {
					api.reconciled("alpha")
				}
				c.check(t, api)
				if err == nil {
					require.NotZero(t, n, "nothing was written")
					return
				}
				require.ErrorIs(t, err, errKilled)
			}
		})
	}
}

func checkRetained(t *testing.T, c *cluster, namespace string) {
	t.Helper()
	n := c.namespace(namespace)
	require.NotNil(t, n)
	assert.Equal(t, map[string]string{labelPodSecurity: "baseline"}, n.Labels)
	assert.Empty(t, c.own(namespace))
}

func checkGone(t *testing.T, c *cluster) {
	t.Helper()
	err := c.Get(t.Context(), client.ObjectKey{Name: "alpha"}, &v1alpha1.Tenant{})
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
}
