package metal3provider

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"firstlight.dev/firstlight/daemon/engine/apply"
)

func TestSecretsOfHostsAreLookedAtTogetherAndSeldom(t *testing.T) {
	ctx, lists, gets := t.Context(), 0, 0
	api := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			gets++
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
			lists++
			return c.List(ctx, o, opts...)
		},
	}).Build()
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: name}}
	}
	labelOf := func(name string) string {
		s := &corev1.Secret{}
		require.NoError(t, api.Get(ctx, client.ObjectKeyFromObject(secret(name)), s))
		return s.Labels[labelCluster]
	}
	name := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "metal3", Name: name} }
	require.NoError(t, api.Create(ctx, secret("a")))
	require.NoError(t, api.Create(ctx, secret("b")))

	i, now := &Installation{}, time.Unix(1e9, 0)
	wanted := map[types.NamespacedName]string{name("a"): "edge", name("b"): "", name("c"): "edge"}
	require.NoError(t, i.keepLabels(ctx, api, wanted, now))
	assert.Equal(t, []int{1, 0}, []int{lists, gets})
	assert.Equal(t, []string{"edge", ""}, []string{labelOf("a"), labelOf("b")})

	require.NoError(t, api.Create(ctx, secret("c")))
	require.NoError(t, i.keepLabels(ctx, api, wanted, now), "one that was not there is looked at again")
	assert.Equal(t, "edge", labelOf("c"))
	lists = 0
	for range 3 {
		require.NoError(t, i.keepLabels(ctx, api, wanted, now))
	}
	assert.Equal(t, 1, lists, "all are as wanted")

	moved := map[types.NamespacedName]string{name("a"): "", name("b"): "", name("c"): "edge"}
	require.NoError(t, i.keepLabels(ctx, api, moved, now))
	assert.Empty(t, labelOf("a"), "at once")
	require.NoError(t, i.keepLabels(ctx, api, moved, now))
	s := secret("c")
	require.NoError(t, api.Get(ctx, client.ObjectKeyFromObject(s), s))
	s.Labels = nil
	require.NoError(t, api.Update(ctx, s))
	require.NoError(t, i.keepLabels(ctx, api, moved, now.Add(apply.CacheTTL)))
	assert.Equal(t, "edge", labelOf("c"), "what somebody took off comes back")
}

func TestTheOutlineOfKindsIsThatOfTheirDefinitions(t *testing.T) {
	outline, err := kindsOutline()
	require.NoError(t, err)
	kinds, err := readKinds()
	require.NoError(t, err)
	assert.Equal(t, kinds.Outline(), outline)
	assert.NotEmpty(t, outline.Objects)
}
