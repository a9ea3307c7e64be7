package apply

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: name},
		Data:       map[string]string{"key": value},
	}
}

func TestSetIsCurrentOnlyAsItWasApplied(t *testing.T) {
	ctx, c := context.Background(), fake.NewClientBuilder().Build()
	set, err := New("test", configMap("a", "1"), configMap("b", "1"))
	require.NoError(t, err)
	assert.EqualError(t, set.CheckCurrent(ctx, c), "ConfigMap metal3/a does not exist")
	require.NoError(t, set.Apply(ctx, c))
	require.NoError(t, set.CheckCurrent(ctx, c))
	require.NoError(t, set.Apply(ctx, c), "applying again is harmless")

	changed, err := New("test", configMap("a", "1"), configMap("b", "2"))
	require.NoError(t, err)
	assert.EqualError(t, changed.CheckCurrent(ctx, c), "ConfigMap metal3/b is not as wanted")
	require.NoError(t, changed.Apply(ctx, c))
	require.NoError(t, changed.CheckCurrent(ctx, c))
	var b corev1.ConfigMap
	require.NoError(t, c.Get(ctx, client.ObjectKey{Namespace: "metal3", Name: "b"}, &b))
	assert.Equal(t, "2", b.Data["key"])
}

// Two clusters of a site: an edit of one must not take back what somebody changed in the other.
func TestWhatIsCurrentKeepsItsChanges(t *testing.T) {
	ctx, c := context.Background(), fake.NewClientBuilder().Build()
	set, err := New("test", configMap("a", "1"), configMap("b", "1"))
	require.NoError(t, err)
	require.NoError(t, set.Apply(ctx, c))
	var a corev1.ConfigMap
	require.NoError(t, c.Get(ctx, client.ObjectKey{Namespace: "metal3", Name: "a"}, &a))
	a.Data["key"] = "by hand"
	require.NoError(t, c.Update(ctx, &a))

	set, err = New("test", configMap("a", "1"), configMap("b", "2"))
	require.NoError(t, err)
	stale := set.StaleSubset(ctx, c)
	require.Len(t, stale.Objects, 1)
	require.NoError(t, stale.Apply(ctx, c))
	require.NoError(t, set.CheckCurrent(ctx, c))
	require.NoError(t, c.Get(ctx, client.ObjectKey{Namespace: "metal3", Name: "a"}, &a))
	assert.Equal(t, "by hand", a.Data["key"])
}

func TestARefusalKeepsNoOtherObjectBack(t *testing.T) {
	ctx, calls := context.Background(), 0
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if calls++; calls == 1 {
				return errors.New("refused by policy")
			}
			return c.Apply(ctx, o, opts...)
		},
	}).Build()
	set, err := New("test", configMap("a", "1"), configMap("b", "1"))
	require.NoError(t, err)
	assert.EqualError(t, set.Apply(ctx, c), "apply ConfigMap metal3/a: refused by policy")
	assert.EqualError(t, set.CheckCurrent(ctx, c), "ConfigMap metal3/a does not exist")
	require.NoError(t, c.Get(ctx, client.ObjectKey{Namespace: "metal3", Name: "b"}, &corev1.ConfigMap{}))
}

func TestNewRefusesAnObjectWithoutKind(t *testing.T) {
	o := configMap("a", "1")
	o.TypeMeta = metav1.TypeMeta{}
	_, err := New("test", o)
	assert.EqualError(t, err, `object "a" says neither kind nor API version`)
}

func TestRead(t *testing.T) {
	set, err := Read("test", []byte("# nothing yet\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: b}\n---\n\n"))
	require.NoError(t, err)
	require.Len(t, set.Objects, 2)
	assert.Equal(t, "Service", set.Objects[1].GetKind())
	assert.NotEmpty(t, set.Objects[0].GetAnnotations()[Annotation])
	_, err = Read("test", []byte("kind: ConfigMap\n---\nkind: [\n"))
	assert.ErrorContains(t, err, "read objects of test: document 2")
	_, err = Read("test", []byte("metadata: {name: a}\n"))
	assert.ErrorContains(t, err, "says neither kind nor API version")
}

func TestAMemoryLooksAgainAfterAWhileAndAtAnotherSetAtOnce(t *testing.T) {
	ctx, now := context.Background(), time.Unix(1e9, 0)
	gets := 0
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			gets++
			return c.Get(ctx, key, o, opts...)
		},
	}).Build()
	m := Cache{now: func() time.Time { return now }}
	set, err := New("test", configMap("a", "1"))
	require.NoError(t, err)
	for range 2 {
		assert.EqualError(t, m.CheckCurrent(ctx, set, c), "ConfigMap metal3/a does not exist", "a refusal is not remembered")
	}
	require.NoError(t, set.Apply(ctx, c))
	gets = 0
	for range 3 {
		require.NoError(t, m.CheckCurrent(ctx, set, c))
	}
	assert.Equal(t, 1, gets)
	changed, err := New("test", configMap("a", "2"))
	require.NoError(t, err)
	assert.EqualError(t, m.CheckCurrent(ctx, changed, c), "ConfigMap metal3/a is not as wanted")
	require.NoError(t, m.CheckCurrent(ctx, set, c))
	require.NoError(t, c.Delete(ctx, configMap("a", "")))
	require.NoError(t, m.CheckCurrent(ctx, set, c), "believed")
	now = now.Add(CacheTTL)
	assert.EqualError(t, m.CheckCurrent(ctx, set, c), "ConfigMap metal3/a does not exist")
}
