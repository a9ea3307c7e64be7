package daemon

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

func TestWhichClustersGetOtherAuthorities(t *testing.T) {
	clusters := []status.Cluster{
		{Name: "edge", Kind: status.KindProvisioning, State: status.ClusterReady},
		{Name: "busy", Kind: status.KindProvisioning, State: status.ClusterInstalling},
		{Name: "waiting", Kind: status.KindProvisioning, State: status.ClusterWaiting},
		{Name: "machines", Kind: status.KindCluster, State: status.ClusterReady},
	}
	for name, want := range map[string]string{
		"edge": "", "busy": "is being changed", "waiting": "and not ready",
		"machines": "of Cluster API", "core": "there is no cluster core",
	} {
		c, err := findRotatable(clusters, name, contract.Rotation{Stage: contract.RotationDone})
		if want == "" {
			assert.NoError(t, err)
			assert.Equal(t, name, c.Name)
			continue
		}
		assert.ErrorContains(t, err, want)
	}
	_, err := findRotatable(clusters, "edge", contract.Rotation{Stage: contract.RotationSigned})
	assert.ErrorContains(t, err, "are being replaced already")
}

func TestARotationIsAskedOfTheProvisioning(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	provisioning := func(name, image string) *v1alpha1.Provisioning {
		return &v1alpha1.Provisioning{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       v1alpha1.ProvisioningSpec{InstallerImage: image},
			Status:     v1alpha1.ProvisioningStatus{Cluster: name},
		}
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		provisioning("edge", ""), provisioning("core", assets.InstallerImage), provisioning("other", "registry.example/kud:1"),
	).Build()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	ask := func(name string) error {
		return askRotation(t.Context(), api, status.Cluster{Name: name, Namespace: "default"}, now)
	}
	for _, name := range []string{"edge", "core"} {
		require.NoError(t, ask(name))
		var p v1alpha1.Provisioning
		require.NoError(t, api.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, &p))
		assert.Equal(t, "20261130T120000Z", p.Annotations[v1alpha1.AnnotationRotation])
	}
	assert.ErrorContains(t, ask("other"), "was installed by registry.example/kud:1")
	assert.ErrorContains(t, ask("gone"), "has no Provisioning")
}
