package apply

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	discoveryfake "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestWhatWasAppliedCanBeLookedAt: objects of sets, of every kind, without what the server adds and without secrets.
func TestWhatWasAppliedCanBeLookedAt(t *testing.T) {
	meta := func(kind, name string) (metav1.TypeMeta, metav1.ObjectMeta) {
		return metav1.TypeMeta{APIVersion: "v1", Kind: kind}, metav1.ObjectMeta{Namespace: "metal3", Name: name}
	}
	secret, plain := &corev1.Secret{Data: map[string][]byte{"password": []byte("calvin")}}, &corev1.ConfigMap{Data: map[string]string{"a": "b"}}
	secret.TypeMeta, secret.ObjectMeta = meta("Secret", "one")
	plain.TypeMeta, plain.ObjectMeta = meta("ConfigMap", "two")
	set, err := New("firstlight-x", secret, plain)
	require.NoError(t, err)
	for _, o := range set.Objects {
		o.SetUID("u-1")
		o.SetManagedFields([]metav1.ManagedFieldsEntry{
			{Manager: "kubectl", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:data":{}}`)}},
			{Manager: "firstlight-x", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:annotations":{"f:` + Annotation + `":{}}}}`)}},
		})
	}
	other := &corev1.ConfigMap{}
	other.TypeMeta, other.ObjectMeta = meta("ConfigMap", "of someone else")

	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	api := fake.NewSimpleDynamicClient(scheme, set.Objects[0], set.Objects[1], other)
	kinds := &discoveryfake.FakeDiscovery{Fake: &clienttesting.Fake{Resources: []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "secrets", Kind: "Secret", Namespaced: true, Verbs: []string{"list", "patch"}},
		{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: []string{"list", "patch"}},
		{Name: "bindings", Kind: "Binding", Namespaced: true, Verbs: []string{"create"}},
	}}}}}
	all, err := ListApplied(t.Context(), kinds, api)
	require.NoError(t, err)
	require.Len(t, all, 2)
	for i, kind := range []string{"ConfigMap", "Secret"} {
		assert.Equal(t, kind, all[i].Object.GetKind())
		assert.Equal(t, "firstlight-x", all[i].Owner)
		assert.Empty(t, all[i].Object.GetUID())
		assert.Empty(t, all[i].Object.GetManagedFields())
		assert.NotContains(t, all[i].Object.GetAnnotations(), Annotation)
	}
	assert.Equal(t, map[string]any{"password": ""}, all[1].Object.Object["data"])
	assert.Equal(t, map[string]any{"a": "b"}, all[0].Object.Object["data"])

	api.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("not today")
	})
	all, err = ListApplied(t.Context(), kinds, api)
	assert.ErrorContains(t, err, "secrets: not today")
	assert.Len(t, all, 1, "the other kinds are there")
	var _ client.Object = all[0].Object
}
