package clusterapi

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/image/objects"
	"firstlight.dev/firstlight/image/recipe"
)

const top = "../../.."

// repositoryFiles are the files that the recipe puts into the stick's repository, by their names there.
var repositoryFiles = sync.OnceValues(func() (map[string]string, error) {
	cmd := exec.Command("go", "mod", "download", "-json", "sigs.k8s.io/cluster-api")
	cmd.Dir = filepath.Join(top, "assets/build/cluster-api")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("find the module of Cluster API: %w", err)
	}

	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return nil, err
	}

	r, err := recipe.ReadFile(filepath.Join(top, "assets/recipe.yaml"))
	if err != nil {
		return nil, err
	}

	files := map[string]string{}
	for _, a := range r.Artifacts {
		name, ok := strings.CutPrefix(a.To, Repository+"/")
		if !ok {
			continue
		}

		switch a.Kind {
		case recipe.KindKustomize:
			files[name], err = objects.Render(filepath.Join(module.Dir, a.Path), "")
		case recipe.KindModule:
			files[name], err = readText(filepath.Join(module.Dir, a.Path))
		default:
			files[name], err = readText(filepath.Join(top, a.File))
		}
		if err != nil {
			return nil, err
		}
	}

	return files, nil
})

// writeRepository writes the stick's repository to dir.
func writeRepository(t testing.TB, dir string) string {
	t.Helper()
	files, err := repositoryFiles()
	require.NoError(t, err)
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir
}

func readText(file string) (string, error) {
	text, err := os.ReadFile(file)
	return string(text), err
}

func testAppliance(t testing.TB) Appliance {
	a := Appliance{Repository: writeRepository(t, t.TempDir()), CA: []byte("root"), Certs: map[string]ca.Pair{}}
	for _, p := range Providers() {
		a.Certs[p.Name] = ca.Pair{Cert: []byte("cert of " + p.Name), Key: []byte("key")}
	}
	return a
}

func kindOf(o client.Object) string { return o.GetObjectKind().GroupVersionKind().Kind }

func TestManifestsBecomeWhatTheApplianceRuns(t *testing.T) {
	all, err := testAppliance(t).Objects()
	require.NoError(t, err)
	kinds := map[string]int{}
	for _, o := range all {
		kinds[kindOf(o)]++
		assert.Contains(t, o.GetLabels(), labelClusterctl, "%s %s", kindOf(o), o.GetName())
		assert.NotContains(t, o.GetAnnotations(), annotationCA, "%s %s", kindOf(o), o.GetName())
	}
	assert.Equal(t, map[string]int{
		"Namespace": 3, "CustomResourceDefinition": 18, "ServiceAccount": 3, "Role": 3, "RoleBinding": 3, "ClusterRole": 5,
		"ClusterRoleBinding": 3, "Service": 3, "Secret": 3, "Deployment": 3, "MutatingWebhookConfiguration": 3,
		"ValidatingWebhookConfiguration": 3, "Provider": 4,
	}, kinds)

	set, err := apply.New("test", all...)
	require.NoError(t, err)
	for _, u := range set.Objects {
		text, err := json.Marshal(u)
		require.NoError(t, err)
		assert.False(t, variable.Match(text), "%s %s: a variable of clusterctl is left", u.GetKind(), u.GetName())
		if u.GetKind() == "Deployment" {
			assert.NotContains(t, string(text), "gcr.io", "an image is from elsewhere")
		}
	}
}

// Whoever calls a webhook must believe its certificate: a definition or a configuration without our authority is
// one whose objects nobody can write.
func TestEveryCallOfAWebhookHasOurAuthority(t *testing.T) {
	all, err := testAppliance(t).Objects()
	require.NoError(t, err)
	conversions, webhooks := 0, 0
	for _, o := range all {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		if config, found, _ := unstructured.NestedMap(u.Object, "spec", "conversion", "webhook", "clientConfig"); found {
			conversions++
			assert.Equal(t, "cm9vdA==", config["caBundle"], u.GetName())
		}
		hooks, _, err := unstructured.NestedSlice(u.Object, "webhooks")
		require.NoError(t, err)
		for _, h := range hooks {
			webhooks++
			bundle, _, _ := unstructured.NestedString(h.(map[string]any), "clientConfig", "caBundle")
			assert.Equal(t, "cm9vdA==", bundle, u.GetName())
		}
	}
	assert.Equal(t, 17, conversions)
	assert.Greater(t, webhooks, 25)
}

// The names in Providers are those of the manifests' own Certificates, which the appliance issues in their place.
func TestCertificatesAreThoseThatTheManifestsAskFor(t *testing.T) {
	repository := testAppliance(t).Repository
	for _, p := range Providers() {
		all, err := readObjects(p.manifest(repository), expandDefaults)
		require.NoError(t, err)
		found := 0
		for _, u := range all {
			if u.GetKind() != "Certificate" {
				continue
			}
			found++
			names, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "dnsNames")
			assert.Equal(t, names, p.names().DNS)
			secret, _, _ := unstructured.NestedString(u.Object, "spec", "secretName")
			assert.Equal(t, secret, p.secret())
			assert.Equal(t, u.GetNamespace(), p.Namespace)
		}
		assert.Equal(t, 1, found, p.Name)
	}
}

func TestManagersRunFromTheStickAndWriteNoLease(t *testing.T) {
	all, err := testAppliance(t).Objects()
	require.NoError(t, err)
	commands := map[string][]string{}
	for _, o := range all {
		d, ok := o.(*appsv1.Deployment)
		if !ok {
			continue
		}
		c := d.Spec.Template.Spec.Containers[0]
		commands[c.Image] = c.Command
		assert.Equal(t, appsv1.RecreateDeploymentStrategyType, d.Spec.Strategy.Type)
		assert.NotContains(t, c.Args, "--leader-elect")
		assert.Contains(t, strings.Join(c.Args, " "), "--feature-gates=", "upstream's own arguments stay")
		assert.Contains(t, strings.Join(c.Args, " "), "--diagnostics-address=:8443")
		assert.Equal(t, c.Command[1] == "control-plane-kubeadm", slices.Contains(c.Args, "--etcd-dial-timeout-duration=1m"))
		assert.EqualValues(t, "Never", c.ImagePullPolicy)
		assert.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
	}
	assert.Equal(t, map[string][]string{
		"firstlight.internal/cluster-api-controller:" + assets.ClusterAPIVersion:           {"/cluster-api", "cluster-api"},
		"firstlight.internal/kubeadm-bootstrap-controller:" + assets.ClusterAPIVersion:     {"/cluster-api", "bootstrap-kubeadm"},
		"firstlight.internal/kubeadm-control-plane-controller:" + assets.ClusterAPIVersion: {"/cluster-api", "control-plane-kubeadm"},
	}, commands)
}

// The recipe, the go.mod and the configuration of clusterctl name the version that the daemon looks for.
func TestOneVersionEverywhere(t *testing.T) {
	text, err := readText(filepath.Join(top, "assets/build/cluster-api/go.mod"))
	require.NoError(t, err)
	assert.Contains(t, text, "sigs.k8s.io/cluster-api "+assets.ClusterAPIVersion+"\n")

	r, err := recipe.ReadFile(filepath.Join(top, "assets/recipe.yaml"))
	require.NoError(t, err)
	assert.Contains(t, r.Program("cluster-api").LDFlags,
		"-X=sigs.k8s.io/cluster-api/version.gitVersion="+assets.ClusterAPIVersion)
	config, err := readText(filepath.Join(top, "assets/build/cluster-api/clusterctl.yaml"))
	require.NoError(t, err)
	assert.Contains(t, config, "tag: "+assets.ClusterAPIVersion+"\n")
	for _, p := range Providers() {
		assert.Equal(t, []string{assets.ClusterAPIVersion}, r.Image(p.Image).Tags)
		assert.Contains(t, config, strings.Replace(p.manifest(Repository), Repository, "${FIRSTLIGHT_CLUSTER_API}", 1)+"\n")
	}
}

func TestAManifestThatLacksSomethingIsNamed(t *testing.T) {
	a := testAppliance(t)
	for file, want := range map[string]string{
		"":                                      "manifest of cluster-api: it has no CustomResourceDefinition",
		"kind: [\n":                             "manifest of cluster-api: read " + Providers()[0].manifest(a.Repository),
		"apiVersion: apps/v1\nkind: Deployment": "its Deployment is / with 0 containers, and not capi-system/capi-controller-manager with one",
	} {
		require.NoError(t, os.WriteFile(Providers()[0].manifest(a.Repository), []byte(file), 0o644))
		_, err := a.Objects()
		assert.ErrorContains(t, err, want)
	}
}
