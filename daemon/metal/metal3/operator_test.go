package metal3

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"firstlight.dev/firstlight/daemon/engine/apply"
)

// manifest is the one of the module that the image is built from.
func manifest(t *testing.T) Manifest {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", "github.com/metal3-io/baremetal-operator")
	cmd.Dir = filepath.FromSlash("../../../assets/build/metal3")
	out, err := cmd.Output()
	require.NoError(t, err, "the operator's module")
	var module struct{ Dir string }
	require.NoError(t, json.Unmarshal(out, &module))
	text, err := os.ReadFile(filepath.Join(module.Dir, "config/render/capm3.yaml"))
	require.NoError(t, err)
	m, err := ReadManifest(text)
	require.NoError(t, err)
	return m
}

func testOperator(t *testing.T) Operator {
	return Operator{
		Manifest: manifest(t), Image: "firstlight.internal/baremetal-operator:v0.6.0",
		IronicEndpoint: "https://172.22.0.1:6385", KernelURL: "http://172.22.0.1:6180/ramdisk/kernel", RamdiskURL: "http://172.22.0.1:6180/ramdisk/initramfs",
		Username: "firstlight", Password: "operator-password", CA: []byte("root"), WebhookCert: []byte("cert"), WebhookKey: []byte("key"), Limit: 20,
	}
}

func TestOperatorTakesFromItsManifestWhatHoldsHere(t *testing.T) {
	objects, err := testOperator(t).Objects()
	require.NoError(t, err)
	kinds := map[string]int{}
	for _, o := range objects {
		kinds[o.GetObjectKind().GroupVersionKind().Kind]++
		assert.NotEqual(t, manifestNamespace, o.GetNamespace())
	}
	assert.Equal(t, map[string]int{
		"Namespace": 1, "CustomResourceDefinition": 8, "ServiceAccount": 1, "Role": 1, "ClusterRole": 3, "RoleBinding": 3,
		"ClusterRoleBinding": 2, "Service": 1, "Secret": 3, "Deployment": 1, "ValidatingWebhookConfiguration": 1,
	}, kinds)

	webhook := objects[len(objects)-1].(*unstructured.Unstructured)
	hooks, _, err := unstructured.NestedSlice(webhook.Object, "webhooks")
	require.NoError(t, err)
	for _, h := range hooks {
		bundle, _, _ := unstructured.NestedString(h.(map[string]any), "clientConfig", "caBundle")
		assert.Equal(t, "cm9vdA==", bundle)
		namespace, _, _ := unstructured.NestedString(h.(map[string]any), "clientConfig", "service", "namespace")
		assert.Equal(t, Namespace, namespace)
	}
	_, err = apply.New("test", objects...)
	assert.NoError(t, err)
}

// TestOperatorReadsSecretsOfItsNamespaceAlone: what it may do is bound where hosts are, and nothing everywhere.
func TestOperatorReadsSecretsOfItsNamespaceAlone(t *testing.T) {
	objects, err := testOperator(t).Objects()
	require.NoError(t, err)
	bound := map[string]string{} // roles by where they are bound
	for _, o := range objects {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		subjects, _, err := unstructured.NestedSlice(u.Object, "subjects")
		require.NoError(t, err)
		role, _, err := unstructured.NestedString(u.Object, "roleRef", "name")
		require.NoError(t, err)
		switch u.GetKind() {
		case "ClusterRoleBinding":
			assert.Empty(t, subjects, "%s binds everywhere", u.GetName())
		case "RoleBinding":
			require.Len(t, subjects, 1)
			assert.Equal(t, map[string]any{"kind": "ServiceAccount", "name": OperatorName, "namespace": Namespace}, subjects[0])
			bound[role] = u.GetNamespace()
		}
	}
	assert.Equal(t, Namespace, bound["baremetal-operator-manager-role"], "it could do nothing at all")
}

func TestOperatorIsToldNoSecretInItsEnvironment(t *testing.T) {
	objects, err := testOperator(t).Objects()
	require.NoError(t, err)
	text, err := json.Marshal(objects[len(objects)-2].(*appsv1.Deployment))
	require.NoError(t, err)
	assert.NotContains(t, string(text), "operator-password")
}

func TestOperatorNamesWhatAManifestLacks(t *testing.T) {
	o := testOperator(t)
	var err error
	o.Manifest, err = ReadManifest([]byte("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: x}\n"))
	require.NoError(t, err)
	_, err = o.Objects()
	assert.ErrorContains(t, err, "the operator's manifest has no ")
}

// TestTheOperatorHearsOfDiscsWhereAHostBootsFromOne: without such a host nothing answers there.
func TestTheOperatorHearsOfDiscsWhereAHostBootsFromOne(t *testing.T) {
	disc := func(o Operator) string {
		for _, e := range o.environment() {
			if e.Name == "DEPLOY_ISO_URL" {
				return e.Value
			}
		}
		return ""
	}
	o := testOperator(t)
	assert.Empty(t, disc(o))
	o.DiscURL = "http://10.30.0.1:6181/disc.iso"
	assert.Equal(t, o.DiscURL, disc(o))
}
