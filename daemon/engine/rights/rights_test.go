package rights

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestARefusedNamespaceKeepsNoOtherWaiting(t *testing.T) {
	calls := 0
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if calls++; calls == 1 {
				return errors.New("it is being deleted")
			}
			return c.Apply(ctx, o, opts...)
		},
	}).Build()
	account := Account{Namespace: "bpa", Name: "operator"}
	namespaces := []string{"b", "a", "b"}
	assert.EqualError(t, account.Grant(t.Context(), c, "test", "owners", namespaces),
		"apply RoleBinding a/owners: it is being deleted")

	var bound rbacv1.RoleBinding
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "b", Name: "owners"}, &bound))
	role := rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "owners"}
	assert.Equal(t, role, bound.RoleRef)
	assert.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "bpa", Name: "operator"}}, bound.Subjects)

	require.NoError(t, account.Grant(t.Context(), c, "test", "owners", namespaces))
	require.NoError(t, account.Grant(t.Context(), c, "test", "owners", namespaces))
	assert.Equal(t, 3, calls, "b once, a twice: what is bound is not bound again")
}
