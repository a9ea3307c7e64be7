package engine

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"firstlight.dev/firstlight/daemon/clusters/kpa/plan"
)

// released is a target without a server, and a Component on it: what matters here is what hooks run in which order.
type released struct {
	*Target
	t  *testing.T
	id ID
}

func newReleased(t *testing.T) *released {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"ConfigMap", "Secret", "Pod"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(batchv1.SchemeGroupVersion.WithKind("Job"), meta.RESTScopeNamespace)
	api := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithRESTMapper(mapper).WithStatusSubresource(&batchv1.Job{}).Build()
	return &released{&Target{client: api, mapper: mapper}, t, ID{"default", "shop"}}
}

// newShop is an object, and hooks for all moments.
func newShop(t *testing.T, version string) Content {
	text := newHooked("ConfigMap", "settings", "version: "+version)
	for name, events := range map[string]string{
		"prepare":  "pre-install,pre-upgrade",
		"announce": "post-install,post-upgrade",
		"restore":  "pre-rollback",
		"farewell": "pre-delete",
		"end":      "post-delete",
	} {
		policy := "before-hook-creation"
		if name == "announce" {
			policy += ",hook-succeeded"
		}
		text += newHooked("Job", name, `helm.sh/hook: "`+events+`", helm.sh/hook-delete-policy: "`+policy+`"`)
	}
	c, err := NewContent([]byte(text))
	require.NoError(t, err)
	return c
}

// step applies and finishes, and returns the reason and the Job that is waited for; "" if nothing is.
func (r *released) step(c Content, o Options) string {
	r.t.Helper()
	o.Prune = true
	err := r.Apply(r.t.Context(), r.id, "default", c, o)
	if err == nil {
		err = r.Finish(r.t.Context(), r.id, "default", c, o)
	}
	return r.read(err)
}

func (r *released) remove(o Options) string {
	r.t.Helper()
	_, v, err := r.Remove(r.t.Context(), r.id, o)
	if err == nil && v.Reason != "" {
		err = &Fault{v}
	}
	return r.read(err)
}

func (r *released) read(err error) string {
	r.t.Helper()
	if err == nil {
		return ""
	}
	v := VerdictOf(err)
	_, job, _ := strings.Cut(v.Message, "Job default/")
	job, _, _ = strings.Cut(job, ":")
	job, _, _ = strings.Cut(job, " ")
	return v.Reason + " " + job
}

func metaOf(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name}
}

// end ends a Job.
func (r *released) end(name string, kind batchv1.JobConditionType) {
	r.t.Helper()
	var j batchv1.Job
	require.NoError(r.t, r.client.Get(r.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, &j))
	j.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, Message: "no database"}}
	require.NoError(r.t, r.client.Status().Update(r.t.Context(), &j))
}

func (r *released) has(name string, o client.Object) bool {
	r.t.Helper()
	err := r.client.Get(r.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, o)
	if err != nil {
		require.True(r.t, apierrors.IsNotFound(err), "%v", err)
	}
	return err == nil
}

func TestHooksOfARelease(t *testing.T) {
	r := newReleased(t)
	one, two := newShop(t, "one"), newShop(t, "two")

	assert.Equal(t, "HookRuns prepare", r.step(one, Options{}))
	assert.False(t, r.has("settings", &corev1.ConfigMap{}), "it comes after the hook")
	r.end("prepare", batchv1.JobFailed)
	assert.Equal(t, "HookFailed prepare", r.step(one, Options{}))
	assert.Equal(t, "HookFailed prepare", r.step(one, Options{}), "within one attempt it does not run again")
	assert.Equal(t, "HookRuns prepare", r.step(one, Options{RetryHook: true}))
	r.end("prepare", batchv1.JobComplete)
	assert.Equal(t, "HookRuns announce", r.step(one, Options{}))
	assert.True(t, r.has("settings", &corev1.ConfigMap{}))
	assert.Equal(t, "HookRuns announce", r.step(one, Options{}), "what has succeeded does not run again")
	r.end("announce", batchv1.JobComplete)
	assert.Empty(t, r.step(one, Options{}))
	assert.True(t, r.has("prepare", &batchv1.Job{}))
	assert.False(t, r.has("announce", &batchv1.Job{}), "its policy says so")
	assert.Empty(t, r.step(one, Options{}), "drift runs no hooks")

	assert.Equal(t, "HookRuns prepare", r.step(two, Options{}), "the Job of before has gone")
	r.end("prepare", batchv1.JobComplete)
	assert.Equal(t, "HookRuns announce", r.step(two, Options{}))
	assert.Equal(t, "HookRuns restore", r.step(one, Options{}), "an upgrade that is not through is rolled back")
	r.end("restore", batchv1.JobComplete)
	assert.Empty(t, r.step(one, Options{}))

	// The removal has its hooks from the target.
	assert.Equal(t, "HookRuns farewell", r.remove(Options{}))
	assert.True(t, r.has("settings", &corev1.ConfigMap{}))
	r.end("farewell", batchv1.JobFailed)
	assert.Equal(t, "HookFailed farewell", r.remove(Options{}))
	require.NoError(t, r.client.Delete(t.Context(), &batchv1.Job{ObjectMeta: metaOf("farewell")}))
	assert.Equal(t, "HookRuns farewell", r.remove(Options{}))
	r.end("farewell", batchv1.JobComplete)
	assert.Equal(t, "HookRuns end", r.remove(Options{}))
	assert.False(t, r.has("settings", &corev1.ConfigMap{}))
	r.end("end", batchv1.JobComplete)
	assert.Empty(t, r.remove(Options{}))
	for _, name := range []string{"prepare", "announce", "restore", "farewell", "end"} {
		assert.False(t, r.has(name, &batchv1.Job{}), name)
	}
	known, err := r.readRecord(t.Context(), r.id)
	require.NoError(t, err)
	assert.Equal(t, record{}, known)
	var secrets corev1.SecretList
	require.NoError(t, r.client.List(t.Context(), &secrets))
	assert.Empty(t, secrets.Items)
}

func TestNoHooks(t *testing.T) {
	r := newReleased(t)
	one := newShop(t, "one")
	assert.Empty(t, r.step(one, Options{NoHooks: true}))
	assert.False(t, r.has("prepare", &batchv1.Job{}))
	known, err := r.readRecord(t.Context(), r.id)
	require.NoError(t, err)
	assert.Equal(t, plan.Release{Installed: []string{one.Revision}, Serial: 1}, known.release)
	assert.Empty(t, r.remove(Options{}))
}

// A hook's object that is not the Component's is not deleted.
func TestAHookWhoseNameIsTaken(t *testing.T) {
	r := newReleased(t)
	require.NoError(t, r.client.Create(t.Context(), &batchv1.Job{ObjectMeta: metaOf("prepare")}))
	assert.Equal(t, "HookFailed prepare", r.step(newShop(t, "one"), Options{}))
	assert.Equal(t, "HookFailed prepare", r.step(newShop(t, "one"), Options{RetryHook: true}))
	assert.True(t, r.has("prepare", &batchv1.Job{}))
}

// What Helm's policy keeps stays, and belongs to no Component.
func TestWhatIsKept(t *testing.T) {
	r := newReleased(t)
	c, err := NewContent([]byte(newHooked("ConfigMap", "kept", "helm.sh/resource-policy: keep") + newHooked("ConfigMap", "other", "a: b")))
	require.NoError(t, err)
	assert.Empty(t, r.step(c, Options{}))
	assert.Empty(t, r.remove(Options{}))
	var m corev1.ConfigMap
	require.True(t, r.has("kept", &m))
	assert.Empty(t, m.Labels)
	assert.False(t, r.has("other", &m))
}
