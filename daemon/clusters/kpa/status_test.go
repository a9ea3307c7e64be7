package kpa

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/engine/apply"
)

func TestComponentsAreListedOnceForAllThatTheyAreNeededFor(t *testing.T) {
	ctx, lists := t.Context(), 0
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	component := func(namespace, name, asker string) *v1alpha1.Component {
		c := &v1alpha1.Component{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)}}
		if asker != "" {
			c.Labels = map[string]string{LabelFor: asker}
		}
		return c
	}
	api := fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(component("default", "edge-nfd", "p"), component("alpha", "own", "")).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
				lists++
				return c.List(ctx, o, opts...)
			},
		}).Build()

	all, err := ReadComponents(ctx, apply.NewCachedReader(api))
	require.NoError(t, err)
	require.NoError(t, all.GrantNamespaces(ctx, api))
	asked := AddOns{Namespace: "default", Owner: metav1.OwnerReference{Name: "p"}, Cluster: "edge", Names: []string{"qat"}}
	require.NoError(t, all.RequestAddOns(ctx, api, []AddOns{asked}))
	assert.Len(t, all.Status(), 2)
	assert.Equal(t, 1, lists)

	for _, namespace := range []string{"default", "alpha"} {
		key := client.ObjectKey{Namespace: namespace, Name: ownersRole}
		assert.NoError(t, api.Get(ctx, key, &rbacv1.RoleBinding{}), namespace)
	}
	all, err = ReadComponents(ctx, api)
	require.NoError(t, err)
	var names []string
	for _, s := range all.Status() {
		names = append(names, s.Name)
	}
	assert.ElementsMatch(t, []string{"alpha/own", "default/edge-qat"}, names, "what no Provisioning asks for is gone")
}

func TestTheStatusOfAComponent(t *testing.T) {
	k := &v1alpha1.Component{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "net"}}
	k.Spec.DependsOn = []v1alpha1.Dependency{{Name: "operator"}, {Name: "crds", OrSkipped: true}}
	k.Status = v1alpha1.ComponentStatus{Phase: v1alpha1.PhaseFailed, Ready: "0/1", Message: "m"}
	k.Status.Clusters = []v1alpha1.ClusterStatus{{
		Name: "edge", Phase: v1alpha1.PhaseFailed, Reason: "ApplyFailed", Message: "no", Revision: "1f2e", Objects: "1/3",
	}}
	assert.Equal(t, status.Component{
		Name: "default/net", State: status.ComponentFailed, Clusters: "0/1", Text: "m", After: []string{"operator", "crds"},
		On: []status.ComponentOn{{
			Cluster: "edge", State: status.ComponentFailed, Reason: "ApplyFailed", Text: "no", Revision: "1f2e", Objects: "1/3",
		}},
	}, summarize(k))
	for _, phase := range []string{
		v1alpha1.PhaseReady, v1alpha1.PhaseSkipped, v1alpha1.PhaseSuspended, v1alpha1.PhaseDegraded, v1alpha1.PhaseRefused,
	} {
		assert.Contains(t, []string{
			status.ComponentReady, status.ComponentSkipped, status.ComponentSuspended, status.ComponentDegraded, status.ComponentRefused,
		}, stateOf(phase))
	}
}

// The definition is read once; whoever gets it changes a copy.
func TestTheDefinitionStaysAsItWasRead(t *testing.T) {
	var digests []string
	for range 2 {
		objects, err := Objects("digest")
		require.NoError(t, err)
		set, err := apply.New(owner, objects...)
		require.NoError(t, err)
		digests = append(digests, set.Objects[0].GetAnnotations()[apply.Annotation])
	}
	assert.Equal(t, digests[0], digests[1])
}
