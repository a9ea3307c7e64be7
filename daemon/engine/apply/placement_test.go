package apply

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"firstlight.dev/firstlight/assets/guest"
)

// placedPod is the pod of the set's only Deployment.
func placedPod(t *testing.T, s Set) (pod corev1.PodSpec) {
	t.Helper()
	for _, o := range s.Objects {
		if o.GetKind() == "Deployment" {
			content, _, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
			require.NoError(t, err)
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(content, &pod))
		}
	}
	return pod
}

func TestPodsOfAGuestAreOnItsNode(t *testing.T) {
	set, err := New("test",
		&corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "metal3"}},
		&corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "api"},
			Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.20"},
		},
		&appsv1.Deployment{
			TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "ironic"},
			Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				NodeSelector: map[string]string{"disk": "fast"},
				Containers: []corev1.Container{
					{Name: "ironic", Image: "firstlight.internal/ironic:1", ImagePullPolicy: corev1.PullNever},
					{Name: "own", Image: "example.org/own:1", Command: []string{"/usr/bin/firstlightd", "bpa"}},
				},
				Volumes: []corev1.Volume{{Name: "state", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/ironic"}}}},
			}}},
		},
	)
	require.NoError(t, err)

	own, err := set.PlaceFor(nil)
	require.NoError(t, err)
	assert.Equal(t, set, own, "the appliance's own Kubernetes gets them as they are")

	place := guest.Placement{Folder: "/srv/rack", Registry: "registry.example:5000/lab"}
	placed, err := set.PlaceFor(Guest{Placement: place})
	require.NoError(t, err)
	pod := placedPod(t, placed)
	assert.Equal(t, map[string]string{
		"disk": "fast", "firstlight.dev/appliance": "", "kubernetes.io/arch": "amd64",
	}, pod.NodeSelector)
	assert.Equal(t, "/srv/rack/var/lib/ironic", pod.Volumes[0].HostPath.Path)
	assert.Equal(t, "registry.example:5000/lab/ironic:1", pod.Containers[0].Image)
	assert.Equal(t, corev1.PullIfNotPresent, pod.Containers[0].ImagePullPolicy)
	assert.Empty(t, pod.Containers[0].Env)
	assert.Equal(t, "example.org/own:1", pod.Containers[1].Image, "it is not ours")
	assert.Equal(t, []corev1.EnvVar{{Name: guest.Variable, Value: place.Encode()}}, pod.Containers[1].Env)
	assert.Equal(t, "privileged", placed.Objects[0].GetLabels()[privileged])
	_, has, err := unstructured.NestedString(placed.Objects[1].Object, "spec", "clusterIP")
	require.NoError(t, err)
	assert.False(t, has, "the cluster's Services have a network of its own")
	assert.Equal(t, "firstlight.internal/ironic:1", placedPod(t, set).Containers[0].Image, "the set is changed")

	// Another placement is a difference, which is applied.
	other, err := set.PlaceFor(Guest{Placement: guest.Placement{Folder: "/srv/other"}})
	require.NoError(t, err)
	assert.NotEqual(t, placed.Objects[2].GetAnnotations()[Annotation], other.Objects[2].GetAnnotations()[Annotation])
}
