package kpa

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/crd"
	"firstlight.dev/firstlight/daemon/clusters/kpa/operator"
	"firstlight.dev/firstlight/daemon/clusters/kpa/plan"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// fixture is two real APIs, the appliance's and that of the cluster edge, and an operator with no more rights than its own.
type fixture struct {
	whole     *testing.T
	t         *testing.T // the part that runs
	api, edge client.Client
	rights    *rest.Config // the operator's
	folder    string
	bundles   string

	edgeConfig string // kubeconfig of edge
	kubectl    func(args ...string) string
}

func newFixture(t *testing.T) *fixture {
	appliance, edge := sandbox.APIServer(t), sandbox.APIServer(t)
	b := &fixture{whole: t, t: t, folder: t.TempDir(), bundles: t.TempDir(), edgeConfig: edge.Kubeconfig}
	connect := func(kubeconfig string) (*rest.Config, client.Client) {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		require.NoError(t, err)
		config.QPS, config.Burst = 200, 200
		scheme, err := operator.Scheme()
		require.NoError(t, err)
		c, err := client.New(config, client.Options{Scheme: scheme})
		require.NoError(t, err)
		return config, c
	}
	config, api := connect(appliance.Kubeconfig)
	b.api = api
	_, b.edge = connect(edge.Kubeconfig)

	program, err := sandbox.BuildProgram(t.Context(), "kubernetes")
	require.NoError(t, err)
	b.kubectl = func(args ...string) string {
		out, err := exec.CommandContext(b.t.Context(), program, append([]string{"kubectl", "--kubeconfig", appliance.Kubeconfig}, args...)...).CombinedOutput()
		require.NoError(b.t, err, "%s", out)
		return string(out)
	}

	objects, err := Objects("digest")
	require.NoError(t, err)
	set, err := apply.New(owner, objects...)
	require.NoError(t, err)
	require.EventuallyWithT(t, func(t *assert.CollectT) { require.NoError(t, set.Apply(context.Background(), b.api)) }, time.Minute, 200*time.Millisecond)
	definitions := filepath.Join(t.TempDir(), "bpa.yaml")
	require.NoError(t, os.WriteFile(definitions, crd.BPA, 0o644))
	b.kubectl("apply", "--server-side", "-f", definitions)
	b.kubectl("wait", "--for=condition=Established", "--timeout=1m", "crd/components.kpa.akraino.org", "crd/provisionings.bpa.akraino.org")

	text, err := os.ReadFile(edge.Kubeconfig)
	require.NoError(t, err)
	loaded, err := clientcmd.Load(text)
	require.NoError(t, err)
	require.NoError(t, clientcmd.ResolveLocalPaths(loaded))
	for _, c := range loaded.Clusters {
		if c.CertificateAuthority != "" {
			c.CertificateAuthorityData, err = os.ReadFile(c.CertificateAuthority)
			require.NoError(t, err)
			c.CertificateAuthority = ""
		}
	}
	for _, u := range loaded.AuthInfos {
		if u.ClientCertificate != "" {
			u.ClientCertificateData, err = os.ReadFile(u.ClientCertificate)
			require.NoError(t, err)
			u.ClientKeyData, err = os.ReadFile(u.ClientKey)
			require.NoError(t, err)
			u.ClientCertificate, u.ClientKey = "", ""
		}
	}
	text, err = clientcmd.Write(*loaded)
	require.NoError(t, err)
	b.secret("edge", text)
	token := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Name}}
	require.NoError(t, b.api.SubResource("token").Create(t.Context(), account, token))
	b.rights = rest.AnonymousClientConfig(config)
	b.rights.BearerToken = token.Status.Token
	return b
}

func (b *fixture) secret(cluster string, kubeconfig []byte) {
	b.t.Helper()
	require.NoError(b.t, b.api.Create(b.t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: cluster + "-kubeconfig"},
		Data:       map[string][]byte{"value": kubeconfig},
	}))
}

// operate runs an operator until the returned function is called, which waits for its end.
func (b *fixture) operate() (stop func()) {
	ctx, cancel := context.WithCancel(b.whole.Context())
	ended := make(chan error, 1)
	c := operator.Config{Namespace: Namespace, Folder: b.folder, Bundles: b.bundles, Health: "0", Own: true}
	go func() { ended <- operator.Run(ctx, b.rights, c, slog.New(slog.NewTextHandler(b.whole.Output(), nil))) }()
	return sync.OnceFunc(func() {
		cancel()
		assert.NoError(b.t, <-ended)
	})
}

// component is a Component on the cluster edge, unless spec says another place.
func component(name, spec string) string {
	if !strings.Contains(spec, "clusters:") && !strings.Contains(spec, "clusterSelector:") && !strings.Contains(spec, "appliance:") {
		spec = "clusters: [edge]\n" + spec
	}
	return "apiVersion: kpa.akraino.org/v1alpha1\nkind: Component\nmetadata: {namespace: default, name: " + name + "}\nspec:\n  " +
		strings.ReplaceAll(spec, "\n", "\n  ")
}

func (b *fixture) try(text string) error {
	u := &unstructured.Unstructured{}
	require.NoError(b.t, yaml.Unmarshal([]byte(text), &u.Object), text)
	return b.api.Apply(b.t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("test"), client.ForceOwnership)
}

func (b *fixture) apply(name, spec string) {
	b.t.Helper()
	require.NoError(b.t, b.try(component(name, spec)))
	require.NoError(b.t, b.components().GrantNamespaces(b.t.Context(), b.api))
}

// components are all that the API has now.
func (b *fixture) components() Components {
	all, err := ReadComponents(b.t.Context(), b.api)
	require.NoError(b.t, err)
	return all
}

// until waits until a Component's status is about what it asks for and is as wanted.
func (b *fixture) until(name, phase, reason string) *v1alpha1.Component {
	b.t.Helper()
	c := &v1alpha1.Component{}
	require.EventuallyWithT(b.t, func(t *assert.CollectT) {
		require.NoError(t, b.api.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, c))
		require.Equal(t, c.Generation, c.Status.ObservedGeneration)
		ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady)
		require.NotNil(t, ready)
		require.Equal(t, phase+" "+reason, c.Status.Phase+" "+ready.Reason, c.Status.Message)
	}, 90*time.Second, 200*time.Millisecond, name)
	return c
}

func (b *fixture) remove(names ...string) {
	b.t.Helper()
	for _, name := range names {
		b.kubectl("delete", "kc", name, "--wait=false", "--ignore-not-found")
	}
	for _, name := range names {
		require.Eventually(b.t, func() bool {
			return apierrors.IsNotFound(b.api.Get(b.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, &v1alpha1.Component{}))
		}, 90*time.Second, 200*time.Millisecond, name)
	}
}

// data is what a ConfigMap of the cluster edge says; "" if it is not there.
func (b *fixture) data(name string) string {
	var m corev1.ConfigMap
	if err := b.edge.Get(b.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, &m); err != nil {
		return ""
	}
	return m.Data["value"]
}

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {value: \"%s\"}\n---\n", name, value)
}

// inline is the source field with these documents.
func inline(documents ...string) string {
	return "source:\n  inline: |\n    " + strings.ReplaceAll(strings.Join(documents, ""), "\n", "\n    ") + "\n"
}

func deployment1(name, app string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %s}
spec:
  selector: {matchLabels: {app: %[2]s}}
  template:
    metadata: {labels: {app: %[2]s}}
    spec: {containers: [{name: c, image: example.org/app:1}]}
---
`, name, app)
}

// run says of a Deployment of edge what its controller would once its pods run.
func (b *fixture) run(name string) {
	b.t.Helper()
	require.EventuallyWithT(b.t, func(t *assert.CollectT) {
		var d appsv1.Deployment
		require.NoError(t, b.edge.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, &d))
		d.Status = appsv1.DeploymentStatus{
			ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1,
			Conditions: []appsv1.DeploymentCondition{
				{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue},
				{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"},
			},
		}
		require.NoError(t, b.edge.Status().Update(context.Background(), &d))
	}, time.Minute, 200*time.Millisecond)
}

// Two real APIs, one operator with its own rights; nothing runs pods, so what controllers would say is said by hand.
func TestComponentsOnTwoAPIs(t *testing.T) {
	b := newFixture(t)
	stop := b.operate()
	defer func() { stop() }()
	t.Run("refusals of the API", func(t *testing.T) { testRefusals(t, b) })
	t.Run("a diamond in its order", func(t *testing.T) { testDiamond(t, b) })
	t.Run("a cycle applies nothing", func(t *testing.T) { testCycle(t, b) })
	t.Run("drift and prune", func(t *testing.T) { testDriftAndPrune(t, b) })
	t.Run("an immutable field", func(t *testing.T) { testImmutable(t, b) })
	t.Run("a kind and its resource", func(t *testing.T) { testKindAndResource(t, b) })
	t.Run("requirements", func(t *testing.T) { testRequires(t, b) })
	t.Run("a broken cluster", func(t *testing.T) { testBrokenCluster(t, b) })
	t.Run("own test", func(t *testing.T) { testSelfTest(t, b) })
	t.Run("the appliance", func(t *testing.T) { testAppliance(t, b) })
	t.Run("selected clusters and a folder", func(t *testing.T) { testSelector(t, b) })
	t.Run("add-ons of a Provisioning", func(t *testing.T) { testAddOns(t, b) })
	t.Run("two with one object", func(t *testing.T) { testOwners(t, b) })
	t.Run("a bundle without its image", func(t *testing.T) { testMissingImage(t, b) })
	t.Run("a packed chart with hooks", func(t *testing.T) {
		testPackedChart(t, b, func() {
			stop()
			stop = b.operate()
		})
	})
	t.Run("killed between apply and wait", func(t *testing.T) {
		b.t = t
		b.apply("web", "timeout: 10m\n"+inline(deployment1("web", "web")))
		b.until("web", v1alpha1.PhaseHealth, plan.ReasonNotHealthy)
		stop()
		stop = b.operate()
		b.until("web", v1alpha1.PhaseHealth, plan.ReasonNotHealthy)
		b.run("web")
		c := b.until("web", v1alpha1.PhaseReady, plan.ReasonReady)
		assert.Equal(t, "1/1", c.Status.Ready)
		assert.Contains(t, b.kubectl("wait", "--for=condition=Ready", "kc/web"), "condition met")
		assert.Regexp(t, `web +Ready +True +1/1`, b.kubectl("get", "kc", "web"))
		var events eventsv1.EventList
		require.NoError(t, b.api.List(t.Context(), &events, client.InNamespace("default")))
		assert.NotEmpty(t, events.Items)
		b.remove("web")
	})
}

func testRefusals(t *testing.T, b *fixture) {
	b.t = t
	for want, spec := range map[string]string{
		"say where: one of":          "clusters: [edge]\nappliance: true\n" + inline(configMap("a", "1")),
		"say from where: one of":     "source: {inline: x, folder: z}",
		"names the Component itself": "dependsOn: [{name: bad}]\n" + inline(configMap("a", "1")),
		"spec.clusters":              "clusters: []\n" + inline(configMap("a", "1")),
		"spec.interval":              "interval: soon\n" + inline(configMap("a", "1")),
		"spec.requires.onMissing":    "requires: {nodeLabels: {a: b}, onMissing: Explode}\n" + inline(configMap("a", "1")),
		"spec.clusters[0]":           "clusters: [../x]\n" + inline(configMap("a", "1")),
		"spec.retries":               "retries: -1\n" + inline(configMap("a", "1")),
	} {
		assert.ErrorContains(t, b.try(component("bad", spec)), want)
	}

	b.apply("bad", inline("kind: ["))
	b.until("bad", v1alpha1.PhaseRefused, plan.ReasonSourceRefused)
	b.apply("bad", "healthExpr: [{apiVersion: v1, kind: Node, expr: self.}]\n"+inline(configMap("a", "1")))
	b.until("bad", v1alpha1.PhaseRefused, plan.ReasonSourceRefused)
	require.NoError(t, b.try(component("bad2", "targetNamespace: one\nsuspend: true\n"+inline(configMap("a", "1")))))
	assert.ErrorContains(t, b.try(component("bad2", "targetNamespace: two\nsuspend: true\n"+inline(configMap("a", "1")))), "targetNamespace cannot change")
	b.until("bad2", v1alpha1.PhaseSuspended, plan.ReasonSuspended)
	b.remove("bad", "bad2")
}

func testDiamond(t *testing.T, b *fixture) {
	b.t = t
	b.apply("top", "dependsOn: [{name: left}, {name: right}]\n"+inline(configMap("top", "1")))
	b.until("top", v1alpha1.PhaseWaiting, plan.ReasonDependencyMissing)
	b.apply("left", "dependsOn: [{name: base}]\n"+inline(configMap("left", "1")))
	b.apply("right", "dependsOn: [{name: base}]\n"+inline(configMap("right", "1")))
	b.apply("base", inline(deployment1("base", "base")))
	b.until("base", v1alpha1.PhaseHealth, plan.ReasonNotHealthy)
	b.until("left", v1alpha1.PhaseWaiting, plan.ReasonDependencyWaits)
	assert.Empty(t, b.data("left")+b.data("right")+b.data("top"), "nothing before base is ready")
	b.run("base")
	for _, name := range []string{"base", "left", "right", "top"} {
		b.until(name, v1alpha1.PhaseReady, plan.ReasonReady)
	}
	assert.Equal(t, "1", b.data("top"))

	b.kubectl("delete", "kc", "base", "left", "right", "--wait=false")
	b.until("base", v1alpha1.PhaseDeleting, plan.ReasonDependents)
	assert.Equal(t, "1", b.data("left"), "what top needs stays")
	b.remove("top")
	require.Eventually(t, func() bool {
		var all v1alpha1.ComponentList
		return b.api.List(t.Context(), &all) == nil && len(all.Items) == 0
	}, 90*time.Second, 200*time.Millisecond)
	assert.Empty(t, b.data("left")+b.data("right")+b.data("top"))
}

func testCycle(t *testing.T, b *fixture) {
	b.t = t
	b.apply("hen", "dependsOn: [{name: egg}]\n"+inline(configMap("hen", "1")))
	b.apply("egg", "dependsOn: [{name: hen}]\n"+inline(configMap("egg", "1")))
	b.until("egg", v1alpha1.PhaseRefused, plan.ReasonDependencyCycle)
	c := b.until("hen", v1alpha1.PhaseRefused, plan.ReasonDependencyCycle)
	assert.Contains(t, c.Status.Message, "hen → egg → hen")
	assert.Empty(t, b.data("hen")+b.data("egg"))
	b.remove("hen", "egg")
}

func testDriftAndPrune(t *testing.T, b *fixture) {
	b.t = t
	b.apply("pair", "interval: 10s\n"+inline(configMap("one", "1"), configMap("two", "2")))
	b.until("pair", v1alpha1.PhaseReady, plan.ReasonReady)
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"data":{"value":"by hand"}}`))
	one := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}}
	require.NoError(t, b.edge.Patch(t.Context(), one, patch))
	require.NoError(t, b.edge.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "two"}}))
	require.Eventually(t, func() bool { return b.data("one") == "1" && b.data("two") == "2" }, time.Minute, 200*time.Millisecond)

	b.apply("pair", "interval: 10s\n"+inline(configMap("one", "3")))
	require.Eventually(t, func() bool { return b.data("one") == "3" && b.data("two") == "" }, time.Minute, 200*time.Millisecond)
	b.remove("pair")
	assert.Empty(t, b.data("one"))
}
