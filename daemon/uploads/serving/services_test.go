package serving

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// describeServices are the Services of a pod's objects: name, address or outer name, port, and where it leads.
func describeServices(t *testing.T, p Pod) map[string][]any {
	t.Helper()
	all := map[string][]any{}
	for _, o := range p.Objects() {
		switch o := o.(type) {
		case *corev1.Service:
			assert.Equal(t, ServiceNamespace, o.Namespace)
			assert.Empty(t, o.Spec.Selector)
			all[o.Name] = append(all[o.Name], o.Spec.ClusterIP+o.Spec.ExternalName, o.Spec.Ports[0].Port)
		case *discoveryv1.EndpointSlice:
			name := o.Labels[discoveryv1.LabelServiceName]
			all[name] = append(all[name], o.Endpoints[0].Addresses[0], *o.Ports[0].Port)
		}
	}
	return all
}

// TestServicesHaveICNsNames: the API's always, the store's where the site names a store.
func TestServicesHaveICNsNames(t *testing.T) {
	api := []any{"10.96.0.15", int32(9015), "172.22.0.1", int32(9015)}
	p := pod()
	assert.Equal(t, map[string][]any{ServiceName: api}, describeServices(t, p))
	p.S3, p.S3Addr = true, netip.MustParseAddr("10.96.0.16")
	assert.Equal(t, map[string][]any{
		ServiceName: api, StoreServiceName: {"10.96.0.16", int32(9000), "172.22.0.1", int32(9000)},
	}, describeServices(t, p))
	assert.Contains(t, strings.Join(command(p, "agent"), " "), "--s3-listen :9000 --s3-keys artifacts/artifacts-s3-keys")
	p.S3 = false
	for endpoint, want := range map[string][]any{
		"https://s3.example:9000": {"s3.example", int32(9000)},
		"http://10.0.0.9:9000":    {"", int32(9000), "10.0.0.9", int32(9000)},
		"https://10.0.0.9":        {"", int32(443), "10.0.0.9", int32(443)},
		"https://s3.example:x":    nil,
		"http://127.0.0.1:9000":   nil,
	} {
		p.Store = &Store{Endpoint: endpoint}
		all := map[string][]any{ServiceName: api}
		if want != nil {
			all[StoreServiceName] = want
		}
		assert.Equal(t, all, describeServices(t, p), endpoint)
	}
	assert.Contains(t, ServiceNames(), "bpa-api-service.default.svc")
}

// TestAStoreThatIsGoneHasNoService, and someone else's Service of that name is left alone.
func TestAStoreThatIsGoneHasNoService(t *testing.T) {
	for _, ours := range []bool{true, false} {
		meta := serviceMeta(StoreServiceName)
		if !ours {
			meta = metav1.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name}
		}
		objects := []client.Object{&corev1.Service{ObjectMeta: meta}, &discoveryv1.EndpointSlice{ObjectMeta: meta}}
		c := fake.NewClientBuilder().WithObjects(objects...).Build()
		for range 2 {
			require.NoError(t, removeStoreService(t.Context(), c))
		}
		for _, o := range objects {
			err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o)
			assert.Equal(t, ours, apierrors.IsNotFound(err), "%T: %v", o, err)
		}
	}
}
