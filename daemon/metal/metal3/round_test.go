package metal3

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// handoverOf is what a node of that name becomes, with empty secrets.
func handoverOf(name string) NodeObjects {
	secret := func(suffix string) *corev1.Secret {
		return &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Name: name + suffix, Namespace: Namespace}}
	}
	return NodeObjects{BMC: secret("-bmc-secret"), User: secret("-user-data"), Network: secret("-network-data"), Host: &metal3api.BareMetalHost{
		TypeMeta:   metav1.TypeMeta{APIVersion: "metal3.io/v1alpha1", Kind: "BareMetalHost"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace},
		Spec:       metal3api.BareMetalHostSpec{Image: &metal3api.Image{URL: "http://172.22.0.1:6180/images/debian-13.raw"}}}}
}

// TestARoundWithoutNewsIsTwoRequests: rounds come as often as any host changes, so with many hosts being
// installed, one that asks for every object would keep the API busy with nothing else.
func TestARoundWithoutNewsIsTwoRequests(t *testing.T) {
	scheme, err := Scheme()
	require.NoError(t, err)
	var mu sync.Mutex
	asked := map[string]int{}
	count := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		asked[what]++
	}
	var nodes []NodeObjects
	var hosts []client.Object
	for i, state := range []metal3api.ProvisioningState{metal3api.StateInspecting, metal3api.StatePreparing, metal3api.StateProvisioning, metal3api.StateProvisioned} {
		n := handoverOf(fmt.Sprint("node-", i))
		nodes = append(nodes, n)
		h := n.Host.DeepCopy()
		h.Status.Provisioning.State = state
		h.Status.HardwareDetails = &metal3api.HardwareDetails{}
		if state == metal3api.StateInspecting || state == metal3api.StatePreparing {
			h.Spec.Image = nil
		}
		hosts = append(hosts, h)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(hosts...).WithReturnManagedFields().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			count("get")
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			count("list")
			return c.List(ctx, list, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			count("apply")
			return c.Apply(ctx, o, opts...)
		},
	}).Build()
	s := Reconciler{Client: api, Backups: Backups{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}, Log: slog.New(slog.DiscardHandler),
		Contents: func(context.Context, *metal3api.BareMetalHost) (Contents, error) { count("contents"); return nil, nil }}
	round := func() map[string]int {
		clear(asked)
		all, err := s.Reconcile(t.Context(), nodes)
		require.NoError(t, err)
		require.NoError(t, JoinErrors(all))
		return maps.Clone(asked)
	}
	// Every node gets its three secrets; two wait for the operator, of the others the host is applied too.
	assert.Equal(t, map[string]int{"list": 2, "apply": 14}, round())
	assert.Equal(t, map[string]int{"list": 2}, round())

	require.NoError(t, api.Delete(t.Context(), nodes[3].User))
	assert.Equal(t, map[string]int{"list": 2, "apply": 3}, round(), "a secret that somebody deleted")
}

// TestSecretsAreThereBeforeTheirHost: Metal3 takes a host whose Secrets are missing for a wrong one.
func TestSecretsAreThereBeforeTheirHost(t *testing.T) {
	scheme, err := Scheme()
	require.NoError(t, err)
	var kinds []string
	record := interceptor.Funcs{Apply: func(
		ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption,
	) error {
		kinds = append(kinds, o.(interface{ GetKind() string }).GetKind())
		return c.Apply(ctx, o, opts...)
	}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().WithInterceptorFuncs(record).Build()
	log := slog.New(slog.DiscardHandler)
	s := Reconciler{Client: api, Backups: Backups{Dir: t.TempDir(), Log: log}, Log: log}
	all, err := s.Reconcile(t.Context(), []NodeObjects{handoverOf("node-1")})
	require.NoError(t, err)
	require.NoError(t, JoinErrors(all))
	require.Greater(t, len(kinds), 1)
	assert.Equal(t, slices.Index(kinds, "BareMetalHost"), len(kinds)-1, "%v", kinds)
}
