package apply

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// server is an API server that notes how it is asked, and whose cache may show nothing or not be listed.
type server struct {
	asked        []string // of each read: verb, kind and "cached" or "fresh"
	emptyCache   bool
	refusesLists error
}

func (s *server) client() client.WithWatch {
	return fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			got := client.GetOptions{}
			got.ApplyOptions(opts)
			isCached := got.Raw != nil && got.Raw.ResourceVersion == "0"
			s.note("get", o.GetObjectKind().GroupVersionKind().Kind, isCached)
			if s.emptyCache && isCached {
				key.Name = "absent"
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
			got := client.ListOptions{}
			got.ApplyOptions(opts)
			isCached := got.Raw != nil && got.Raw.ResourceVersion == "0"
			s.note("list", o.GetObjectKind().GroupVersionKind().Kind, isCached)
			if s.refusesLists != nil || s.emptyCache && isCached {
				return s.refusesLists
			}
			return c.List(ctx, o, opts...)
		},
	}).Build()
}

func (s *server) note(verb, kind string, isCached bool) {
	from := "fresh"
	if isCached {
		from = "cached"
	}
	s.asked = append(s.asked, verb+" "+kind+" "+from)
}

func (s *server) takeAsked() []string {
	asked := s.asked
	s.asked = nil
	return asked
}

// many is a set of six ConfigMaps in one namespace and one in another.
func many(t *testing.T) Set {
	var all []client.Object
	for i := range 6 {
		all = append(all, configMap(fmt.Sprint(i), "1"))
	}
	other := configMap("x", "1")
	other.Namespace = "other"
	set, err := New("test", append(all, other)...)
	require.NoError(t, err)
	return set
}

func TestARecheckListsWhatIsManyAndBelievesTheCacheOnlyInWhatIsRight(t *testing.T) {
	ctx, s, set := t.Context(), &server{}, many(t)
	c := s.client()
	require.NoError(t, set.Apply(ctx, c))
	s.takeAsked()
	require.NoError(t, set.Recheck(ctx, c))
	assert.Equal(t, []string{"list ConfigMapList cached", "get ConfigMap cached"}, s.takeAsked())
	require.NoError(t, set.Outline().Recheck(ctx, c), "names and digests are enough")
	s.takeAsked()

	// Gone and changed objects are found, by a second look at them alone.
	require.NoError(t, c.Delete(ctx, configMap("4", "")))
	assert.EqualError(t, set.Recheck(ctx, c), "ConfigMap metal3/4 does not exist")
	assert.Equal(t, []string{"list ConfigMapList cached", "get ConfigMap fresh"}, s.takeAsked())
	require.NoError(t, set.Apply(ctx, c))
	var changed corev1.ConfigMap
	require.NoError(t, c.Get(ctx, client.ObjectKey{Namespace: "other", Name: "x"}, &changed))
	changed.Annotations[Annotation] = "another"
	require.NoError(t, c.Update(ctx, &changed))
	assert.EqualError(t, set.Recheck(ctx, c), "ConfigMap other/x is not as wanted")
}

func TestARecheckActsOnNoAnswerThatIsOnlyLate(t *testing.T) {
	ctx, s, set := t.Context(), &server{}, many(t)
	c := s.client()
	require.NoError(t, set.Apply(ctx, c))
	s.emptyCache = true
	assert.NoError(t, set.Recheck(ctx, c), "a cache that has not seen the objects")

	s.emptyCache, s.refusesLists = false, errors.New("no list")
	assert.NoError(t, set.Recheck(ctx, c), "they are read one by one")
}

func TestACacheAsksForLessOnceASetWasCurrent(t *testing.T) {
	ctx, s, set := t.Context(), &server{}, many(t)
	c, now := s.client(), time.Unix(1e9, 0)
	m := Cache{now: func() time.Time { return now }}
	require.NoError(t, set.Apply(ctx, c))
	s.takeAsked()
	require.NoError(t, m.CheckCurrent(ctx, set, c))
	assert.Len(t, s.takeAsked(), 7, "what was applied just now is read from etcd, one by one")

	now = now.Add(CacheTTL)
	require.NoError(t, m.CheckCurrent(ctx, set, c))
	assert.Equal(t, []string{"list ConfigMapList cached", "get ConfigMap cached"}, s.takeAsked())
	require.NoError(t, m.CheckCurrent(ctx, set, c))
	assert.Empty(t, s.takeAsked(), "believed")

	require.NoError(t, c.Delete(ctx, configMap("4", "")))
	now = now.Add(CacheTTL)
	require.EqualError(t, m.CheckCurrent(ctx, set, c), "ConfigMap metal3/4 does not exist")
	s.takeAsked()
	require.NoError(t, set.Apply(ctx, c))
	require.NoError(t, m.CheckCurrent(ctx, set, c))
	assert.Len(t, s.takeAsked(), 7, "after a loss every object is read from etcd")
}

func TestACachedReaderSaysSoWithEveryRead(t *testing.T) {
	ctx, s := t.Context(), &server{}
	api := s.client()
	c := NewCachedReader(api)
	require.NoError(t, api.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "a"}}))
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	options := []client.ListOption{client.InNamespace("metal3")}
	for range 2 {
		require.NoError(t, c.List(ctx, list, options...))
	}
	assert.Len(t, list.Items, 1)
	have := &metav1.PartialObjectMetadata{}
	have.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	require.NoError(t, c.Get(ctx, client.ObjectKey{Namespace: "metal3", Name: "a"}, have))
	assert.Equal(t, []string{"list ConfigMapList cached", "list ConfigMapList cached", "get ConfigMap cached"}, s.asked)
}
