package grant

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// newAPI is an API that gives out tokens and writes down for whom.
func newAPI(t *testing.T, asked *[]string) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	return fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().WithInterceptorFuncs(interceptor.Funcs{
		SubResourceCreate: func(_ context.Context, _ client.Client, _ string, o, sub client.Object, _ ...client.SubResourceCreateOption) error {
			request := sub.(*authenticationv1.TokenRequest)
			*asked = append(*asked, o.GetNamespace()+"/"+o.GetName()+" "+(time.Duration(*request.Spec.ExpirationSeconds)*time.Second).String())
			request.Status.Token = "eyJ"
			return nil
		},
	}).Build()
}

// TestOneCallLetsAnOwnerUpload, again and again, and gives no right beside the uploads of that owner.
func TestOneCallLetsAnOwnerUpload(t *testing.T) {
	var asked []string
	api := newAPI(t, &asked)
	for range 2 {
		token, err := Token(t.Context(), api, "alpha", time.Hour)
		require.NoError(t, err)
		assert.Equal(t, "eyJ", token)
	}
	assert.Equal(t, []string{"alpha/uploader 1h0m0s", "alpha/uploader 1h0m0s"}, asked)

	var role rbacv1.Role
	key := client.ObjectKey{Namespace: "alpha", Name: "uploader"}
	require.NoError(t, api.Get(t.Context(), key, &role))
	assert.Equal(t, []rbacv1.PolicyRule{{
		APIGroups: []string{"artifact.firstlight.dev"},
		Resources: []string{"binary_images", "container_images", "os_images"},
		Verbs:     []string{"create", "get", "list", "update", "patch", "delete"},
	}}, role.Rules)
	var binding rbacv1.RoleBinding
	require.NoError(t, api.Get(t.Context(), key, &binding))
	assert.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "alpha", Name: "uploader"}}, binding.Subjects)
	require.NoError(t, api.Get(t.Context(), key, &corev1.ServiceAccount{}))
	require.NoError(t, api.Get(t.Context(), client.ObjectKey{Name: "alpha"}, &corev1.Namespace{}))
}

func TestWhoIsNoOwner(t *testing.T) {
	var asked []string
	api := newAPI(t, &asked)
	for owner, why := range map[string]string{
		"kube-system": "a namespace of the appliance itself", "metal3": "a namespace of the appliance itself",
		"capi-system": "a namespace of the appliance itself", "Alpha": "RFC 1123 label", "": "RFC 1123 label", "a/b": "RFC 1123 label",
	} {
		_, err := Token(t.Context(), api, owner, time.Hour)
		assert.ErrorContains(t, err, why, owner)
	}
	assert.Empty(t, asked)
	var all corev1.NamespaceList
	require.NoError(t, api.List(t.Context(), &all))
	assert.Empty(t, all.Items)
}
