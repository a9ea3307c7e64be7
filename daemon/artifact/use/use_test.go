package use

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"firstlight.dev/firstlight/assets/artifact"
)

func host(name, wanted, installed string) *unstructured.Unstructured {
	image := func(u string) map[string]any { return map[string]any{"image": map[string]any{"url": u}} }
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
		"metadata": map[string]any{"namespace": "metal3", "name": name},
		"spec":     image(wanted), "status": map[string]any{"provisioning": image(installed)}}}
}

func TestHostsThatUseAnImage(t *testing.T) {
	const at = "http://172.22.0.1:6180/artifacts/"
	lists := map[schema.GroupVersionResource]string{hosts: "BareMetalHostList"}
	api := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists,
		host("wants", at+"alpha/beta/debian", ""), host("has", "", at+"alpha/beta/debian"), host("other", at+"gamma/beta/debian", "::"),
		host("stick", "http://172.22.0.1:6180/images/debian-13.raw", ""))
	k := artifact.Key{Collection: artifact.OS, Owner: "alpha", Cluster: "beta", Name: "debian"}
	users, err := Hosts{api}.Users(t.Context(), k)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"BareMetalHost metal3/wants", "BareMetalHost metal3/has"}, users)
	k.Name = "debian-12"
	users, err = Hosts{api}.Users(t.Context(), k)
	require.NoError(t, err)
	assert.Empty(t, users)

	for failure, refused := range map[error]bool{apierrors.NewNotFound(hosts.GroupResource(), ""): false, errors.New("connection refused"): true} {
		down := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
		down.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, failure })
		_, err = Hosts{down}.Users(t.Context(), k)
		assert.Equal(t, refused, err != nil, "%v", failure)
		k.Collection = artifact.Binary
		_, err = Hosts{down}.Users(t.Context(), k)
		assert.NoError(t, err, "nobody is asked for what nobody installs")
		k.Collection = artifact.OS
	}
}
