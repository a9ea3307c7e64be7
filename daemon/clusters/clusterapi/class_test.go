package clusterapi

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// revision is the number in the names of the class's templates, and digests are those of their content. Templates cannot
// be changed where they are used: who changes one counts up the number, and writes the digests that the test prints.
const revision = "firstlight-2"

var digests = map[string]string{
	"KubeadmConfigTemplate":       "e47ed024fc8a02ed",
	"KubeadmControlPlaneTemplate": "29589dbced681763",
	"Metal3ClusterTemplate":       "761fd0f649bee45b",
	"Metal3DataTemplate":          "a2f59387c2f7d3e0",
	"Metal3MachineTemplate":       "0c185675f32d7ec9",
}

var testImage = Image{URL: "http://172.22.0.1/images/debian-13.raw", SHA256: "abc", Format: "raw"}

func testClass(t testing.TB) Class {
	return Class{Repository: writeRepository(t, t.TempDir()), Image: testImage}
}

func classObjects(t testing.TB) map[string]*unstructured.Unstructured {
	all, err := testClass(t).Objects()
	require.NoError(t, err)
	byKind := map[string]*unstructured.Unstructured{}
	for _, o := range all {
		u := o.(*unstructured.Unstructured)
		require.NotContains(t, byKind, u.GetKind())
		assert.Equal(t, "metal3", u.GetNamespace())
		byKind[u.GetKind()] = u
	}
	return byKind
}

func nested(t testing.TB, u *unstructured.Unstructured, path string) any {
	t.Helper()
	value, found, err := unstructured.NestedFieldNoCopy(u.Object, strings.Split(path, ".")...)
	require.NoError(t, err)
	require.True(t, found, "%s %s has no %s", u.GetKind(), u.GetName(), path)
	return value
}

func TestTemplatesOfTheClassHaveANumber(t *testing.T) {
	found := map[string]string{}
	for kind, u := range classObjects(t) {
		if kind == "ClusterClass" {
			assert.Equal(t, ClassName, u.GetName())
			continue
		}
		assert.Equal(t, revision, u.GetName())
		u.SetName("")
		set, err := apply.New("test", u)
		require.NoError(t, err)
		found[kind] = set.Objects[0].GetAnnotations()[apply.Annotation]
	}
	assert.Equal(t, digests, found, "count up the number in the names of %s", revision)
}

// A node of the class is set up as one of the flavour without a class is.
func TestTheClassSaysWhatTheFlavourSays(t *testing.T) {
	class := classObjects(t)
	flavour := map[string]*unstructured.Unstructured{}
	all, err := readObjects(filepath.Join(top, "assets/build/cluster-api/cluster-template.yaml"), func(text []byte) []byte {
		return []byte(strings.NewReplacer(
			"port: ${CONTROL_PLANE_ENDPOINT_PORT:=6443}", "port: 6443", "${CONTROL_PLANE_MACHINE_COUNT}", "1", "${WORKER_MACHINE_COUNT}", "1",
		).Replace(string(text)))
	})
	require.NoError(t, err)
	for _, u := range all {
		flavour[u.GetKind()] = u
	}

	for _, same := range []struct{ kind, path, flavour, at string }{
		{"KubeadmControlPlaneTemplate", "spec.template.spec.kubeadmConfigSpec", "KubeadmControlPlane", "spec.kubeadmConfigSpec"},
		{"KubeadmConfigTemplate", "spec", "KubeadmConfigTemplate", "spec"},
		{"Metal3DataTemplate", "spec", "Metal3DataTemplate", "spec"},
	} {
		assert.Equal(t, nested(t, flavour[same.flavour], same.at), nested(t, class[same.kind], same.path), same.kind)
	}
}

// The page quotes what clusterctl prints.
func TestThePageQuotesTheTwentyLines(t *testing.T) {
	text, err := readText(filepath.Join(top, "assets/build/cluster-api/cluster-template-topology.yaml"))
	require.NoError(t, err)
	_, text, _ = strings.Cut(text, "without a flavor.\n")
	text = strings.NewReplacer(
		"${CLUSTER_NAME}", "edge", "${NAMESPACE}", "metal3", "${POD_CIDR:=10.245.0.0/16}", "10.245.0.0/16",
		"${SERVICE_CIDR:=10.97.0.0/16}", "10.97.0.0/16", "${KUBERNETES_VERSION}", assets.KubernetesVersion,
		"${CONTROL_PLANE_MACHINE_COUNT}", "3", "${WORKER_MACHINE_COUNT}", "2",
		"${CONTROL_PLANE_ENDPOINT_HOST}", "172.22.0.200", "${CONTROL_PLANE_ENDPOINT_PORT:=6443}", "6443",
	).Replace(text)
	assert.NotContains(t, text, "$")
	assert.LessOrEqual(t, strings.Count(text, "\n"), 22)

	page, err := readText(filepath.Join(top, "docs/cluster-api.md"))
	require.NoError(t, err)
	assert.Contains(t, page, "<!-- begin topology -->\n```yaml\n"+text+"```\n<!-- end -->\n")
}

func TestTheClassHasTheImageOfTheStick(t *testing.T) {
	class := classObjects(t)["ClusterClass"]
	for _, v := range nested(t, class, "spec.variables").([]any) {
		if v := v.(map[string]any); v["name"] == "image" {
			got, _, err := unstructured.NestedMap(v, "schema", "openAPIV3Schema", "default")
			require.NoError(t, err)
			assert.Equal(t, map[string]any{
				"url": testImage.URL, "checksum": "abc", "checksumType": "sha256", "format": "raw",
			}, got)
			return
		}
	}
	assert.Fail(t, "the class has no variable image")
}

// Another image is no other class; another patch is.
func TestAClassInUseIsLeftAsItIs(t *testing.T) {
	kind := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "metal3clustertemplates.infrastructure.cluster.x-k8s.io"},
	}
	scheme := runtime.NewScheme()
	require.NoError(t, apiextensionsv1.AddToScheme(scheme))
	cluster := func(class string) client.Object {
		u := newObject("Cluster")
		u.SetNamespace("metal3")
		u.SetName("edge")
		require.NoError(t, unstructured.SetNestedField(u.Object, class, "spec", "topology", "classRef", "name"))
		return u
	}
	was := func(change func(*unstructured.Unstructured)) client.Object {
		u := classObjects(t)["ClusterClass"]
		change(u)
		return u
	}
	same := was(func(*unstructured.Unstructured) {})
	other := was(func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{label.Class: "other"}) })

	for _, c := range []struct {
		name string
		have []client.Object
		want int
	}{
		{"nothing is there", []client.Object{kind}, 6},
		{"the same is there, in use", []client.Object{kind, same, cluster(ClassName)}, 6},
		{"another is there", []client.Object{kind, other}, 6},
		{"another is there, and a cluster of some other class", []client.Object{kind, other, cluster("mine")}, 6},
		{"another is there, in use", []client.Object{kind, other, cluster(ClassName)}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(c.have...).Build()
			got, err := testClass(t).objectsToApply(t.Context(), api)
			require.NoError(t, err)
			assert.Len(t, got, c.want)
		})
	}

	_, err := testClass(t).objectsToApply(t.Context(), fake.NewClientBuilder().WithScheme(scheme).Build())
	assert.True(t, bringup.IsWait(err))
	assert.ErrorContains(t, err, "the kinds of provider metal3")
}

// applyClass is the daemon's part. The etcd of its clusters is not their own (see generate).
func (r *rack) applyClass() {
	all, err := Class{Repository: r.repository(), Image: testImage}.Objects()
	require.NoError(r.t, err)
	for _, o := range all {
		if u := o.(*unstructured.Unstructured); u.GetKind() == "KubeadmControlPlaneTemplate" {
			require.NoError(r.t, unstructured.SetNestedMap(u.Object, map[string]any{"external": map[string]any{
				"endpoints": []any{"https://127.0.0.1:9"}, "caFile": "/a", "certFile": "/b", "keyFile": "/c",
			}}, "spec", "template", "spec", "kubeadmConfigSpec", "clusterConfiguration", "etcd"))
		}
	}
	set, err := apply.New(classOwner, all...)
	require.NoError(r.t, err)
	r.until("the class is applied", func() error { return set.Apply(r.t.Context(), r.client) })
	require.NoError(r.t, set.Apply(r.t.Context(), r.client), "it is applied again and again")
	r.until("the class is reconciled", func() error {
		class := r.object("clusterclass", ClassName)
		if got := field(class, `.status.conditions[?(@.type=="VariablesReady")].status`); got != "True" {
			return fmt.Errorf("its variables are ready: %q", got)
		}
		return nil
	})
	r.template = revision
}

// object is all of an object in the namespace of hosts.
func (r *rack) object(kind, name string) map[string]any {
	r.t.Helper()
	u := &unstructured.Unstructured{}
	out, err := r.kubectl("", "get", kind, name, "-n", "metal3", "-o", "json")
	require.NoError(r.t, err, out)
	require.NoError(r.t, u.UnmarshalJSON([]byte(out)))
	return u.Object
}

// reconciled waits until the managers have made of a cluster's topology what it says.
func (r *rack) reconciled(cluster string) {
	r.t.Helper()
	r.until("the topology is reconciled", func() error {
		got := field(r.object("cluster", cluster), `.status.conditions[?(@.type=="TopologyReconciled")]`)
		if !strings.Contains(got, `"status":"True"`) {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
}

// Some twenty lines become the same objects as the flavour without a class, and those become nodes.
func TestAClusterOfTheClass(t *testing.T) {
	r := newRack(t, 5)
	r.prepareWorkload("edge")
	r.prepareNodeSetup()
	r.applyClass()

	text := r.clusterctlWith([]string{
		"CONTROL_PLANE_ENDPOINT_HOST=" + r.host(), "CONTROL_PLANE_ENDPOINT_PORT=" + r.port(),
	}, "generate", "cluster", "edge", "-n", "metal3", "--flavor", "topology", "--kubernetes-version", "v1.36.3",
		"--control-plane-machine-count", "1", "--worker-machine-count", "1")
	t.Log("\n" + text)
	assert.NotContains(t, text, "kind: ClusterClass", "it is there")
	r.apply(text)
	r.settles(1, 1)
	r.reconciled("edge")
	r.testSameAsFlavour()
	r.killAll()
	r.reconciled("edge")

	r.run("delete", "cluster", "edge", "-n", "metal3", "--wait=false")
	r.testNothingIsLeft()
	r.until("what was made of the templates is gone", func() error {
		for kind, left := range map[string]string{"metal3machinetemplates": revision, "kubeadmconfigtemplates": revision} {
			if got := r.names(kind); got != left {
				return fmt.Errorf("there are %s %s", kind, got)
			}
		}
		return nil
	})
	r.history.assertInvariants()
	r.testVariables()
}

// names are those of all objects of a kind.
func (r *rack) names(kind string) string {
	out, err := r.kubectl("", "get", kind, "-n", "metal3", "-o", "jsonpath={.items[*].metadata.name}")
	require.NoError(r.t, err, out)
	return out
}

// testSameAsFlavour compares what the managers made of the class with what the API server makes of the flavour.
func (r *rack) testSameAsFlavour() {
	out, err := r.kubectl(strings.ReplaceAll(r.generate("", 1, 1), "edge", "plain"), "create", "--dry-run=server", "-o", "json", "-f", "-")
	require.NoError(r.t, err, out)
	plain := map[string]map[string]any{}
	for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
		u := &unstructured.Unstructured{}
		require.NoError(r.t, d.Decode(&u.Object))
		plain[u.GetKind()+" "+u.GetName()] = u.Object
	}

	cluster := r.object("cluster", "edge")
	control := r.object("kubeadmcontrolplane", field(cluster, ".spec.controlPlaneRef.name"))
	deployment := r.object("machinedeployment", r.names("machinedeployments"))
	const machines = ".spec.template.spec.infrastructureRef.name"
	for _, c := range []struct {
		name string
		have map[string]any
		path string
	}{
		{"Cluster plain", cluster, ".spec.clusterNetwork"},
		{"Metal3Cluster plain", r.object("metal3cluster", r.infra()), ".spec"},
		{"KubeadmControlPlane plain", control, ".spec.kubeadmConfigSpec"},
		{"KubeadmControlPlane plain", control, ".spec.version"},
		{"KubeadmControlPlane plain", control, ".spec.replicas"},
		{"Metal3MachineTemplate plain-control-plane", r.object("metal3machinetemplate",
			field(control, ".spec.machineTemplate.spec.infrastructureRef.name")), ".spec"},
		{"MachineDeployment plain-md-0", deployment, ".spec.replicas"},
		{"MachineDeployment plain-md-0", deployment, ".spec.template.spec.version"},
		{"Metal3MachineTemplate plain-md-0", r.object("metal3machinetemplate", field(deployment, machines)), ".spec"},
		{"KubeadmConfigTemplate plain-md-0", r.object("kubeadmconfigtemplate",
			field(deployment, ".spec.template.spec.bootstrap.configRef.name")), ".spec"},
	} {
		require.NotNil(r.t, plain[c.name], c.name)
		want := strings.ReplaceAll(field(plain[c.name], c.path), `"dataTemplate":{"name":"plain"}`, `"dataTemplate":{"name":"`+revision+`"}`)
		assert.NotEmpty(r.t, want, c.path)
		assert.Equal(r.t, want, field(c.have, c.path), "%s of %s", c.path, c.name)
	}
}

// testVariables makes a cluster that says everything, and tries some that are refused.
func (r *rack) testVariables() {
	const cluster = `{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {name: said, namespace: metal3}, spec: {
topology: {classRef: {name: firstlight}, version: v1.36.3, controlPlane: {replicas: 1}, variables: [%s]}}}`
	for variables, want := range map[string]string{
		"":                            "required",
		"{name: endpoint, value: {}}": "give host or pool",
		"{name: endpoint, value: {host: 10.9.0.1, pool: edge}}":           "give host or pool",
		"{name: endpoint, value: {pool: edge, port: 443}}":                "the port of an address from a pool is 6443",
		"{name: endpoint, value: {pool: edge}}, {name: image, value: {}}": "url",
	} {
		out, err := r.kubectl(fmt.Sprintf(cluster, variables), "create", "-f", "-")
		assert.Error(r.t, err, variables)
		assert.Contains(r.t, out, want)
	}

	r.prepareWorkload("said")
	r.run("label", "baremetalhost", "host-4", "-n", "metal3", "role=control-plane")
	r.apply(strings.ReplaceAll(pool, "edge", "said") + `---
{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {name: said, namespace: metal3}, spec: {topology: {
  classRef: {name: firstlight}, version: v1.36.3,
  controlPlane: {replicas: 1, variables: {overrides: [{name: hostSelector, value: {matchLabels: {role: control-plane}}}]}},
  workers: {machineDeployments: [{class: worker, name: md-0, replicas: 1, variables: {overrides: [
    {name: hostSelector, value: {matchExpressions: [{key: role, operator: in, values: [worker]}]}}]}}]},
  variables: [{name: endpoint, value: {pool: said}}, {name: dataTemplate, value: mine}, {name: sshKeys, value: [ssh-ed25519 AAAA me]},
    {name: workloadOnControlPlane, value: true},
    {name: image, value: {url: "http://10.9.0.1/other.qcow2", checksum: ff, checksumType: md5, format: qcow2}}]}}}
---
{apiVersion: infrastructure.cluster.x-k8s.io/v1beta2, kind: Metal3DataTemplate, metadata: {name: mine, namespace: metal3},
  spec: {metaData: {objectNames: [{key: local_hostname, object: machine}]}}}
`)
	r.until("the control plane machine has its host", func() error {
		if got := r.in("baremetalhosts", "host-4", ".spec.image.url"); got != "http://10.9.0.1/other.qcow2" {
			return fmt.Errorf("its image is %q", got)
		}
		return nil
	})
	r.reconciled("said")

	said := r.object("cluster", "said")
	assert.Regexp(r.t, `^10\.9\.0\.1\d$`, field(said, ".spec.controlPlaneEndpoint.host"))
	assert.Equal(r.t, "md5", r.in("baremetalhosts", "host-4", ".spec.image.checksumType"))
	control := r.object("kubeadmcontrolplane", field(said, ".spec.controlPlaneRef.name"))
	const user = `{"name":"firstlight","shell":"/bin/bash","sshAuthorizedKeys":["ssh-ed25519 AAAA me"],"sudo":"ALL=(ALL) NOPASSWD:ALL"}`
	assert.Equal(r.t, user, field(control, ".spec.kubeadmConfigSpec.users[0]"))
	for _, c := range []string{"init", "join"} {
		assert.Equal(r.t, "[]", field(control, ".spec.kubeadmConfigSpec."+c+"Configuration.nodeRegistration.taints"))
	}
	deployment := r.object("machinedeployment", r.names("machinedeployments"))
	assert.Equal(r.t, user, field(r.object("kubeadmconfigtemplate", field(deployment, ".spec.template.spec.bootstrap.configRef.name")),
		".spec.template.spec.users[0]"))
	template := r.object("metal3machinetemplate", field(deployment, ".spec.template.spec.infrastructureRef.name"))
	assert.JSONEq(r.t, `{"matchExpressions":[{"key":"role","operator":"in","values":["worker"]}]}`,
		field(template, ".spec.template.spec.hostSelector"))
	assert.Equal(r.t, "mine", field(template, ".spec.template.spec.dataTemplate.name"))

	r.run("delete", "cluster", "said", "-n", "metal3", "--wait=false")
	r.until("the cluster is gone", func() error {
		if names := r.list("clusters", ".metadata.name"); len(names) > 0 {
			return fmt.Errorf("there are %v", names)
		}
		return nil
	})
	require.Empty(r.t, r.claims())
}
