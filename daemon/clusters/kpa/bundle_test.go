package kpa

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/bundle"
	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/daemon/clusters/kpa/plan"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/uploads/containers"
	"firstlight.dev/firstlight/image/pack"
)

// chart is ours: hooks, a kind, a StatefulSet, five images.
const chart = "../../../image/pack/testdata/shop"

// uploads are archives that someone brings, and the registry that gets their images.
type uploads struct {
	b       *fixture
	dir     string
	host    string
	pusher  *containers.Pusher
	records []artifact.Metadata
}

func newUploads(b *fixture) *uploads {
	server := httptest.NewServer(registry.New())
	b.t.Cleanup(server.Close)
	u := &uploads{b: b, dir: b.t.TempDir(), host: strings.TrimPrefix(server.URL, "http://")}
	u.pusher = &containers.Pusher{
		Registry:  u.host,
		Transport: http.DefaultTransport,
		State:     filepath.Join(u.dir, "pushed.json"),
		File:      func(k artifact.Key) string { return filepath.Join(u.dir, k.Name) },
		Bundles:   b.bundles,
		Report: func(_ context.Context, k artifact.Key, _ string, _ []string, why string) error {
			assert.Empty(b.t, why, k.Name)
			return nil
		},
	}
	return u
}

// images writes an archive as docker save does; equal names have equal content.
func (u *uploads) images(file string, names ...string) string {
	u.b.t.Helper()
	all := map[name.Tag]v1.Image{}
	for _, n := range names {
		tag, err := name.NewTag(n)
		require.NoError(u.b.t, err)
		image, err := mutate.AppendLayers(empty.Image, static.NewLayer([]byte(n), types.DockerUncompressedLayer))
		require.NoError(u.b.t, err)
		config, err := image.ConfigFile()
		require.NoError(u.b.t, err)
		config = config.DeepCopy()
		config.OS, config.Architecture = "linux", "amd64"
		all[tag], err = mutate.ConfigFile(image, config)
		require.NoError(u.b.t, err)
	}
	file = filepath.Join(u.dir, file)
	require.NoError(u.b.t, tarball.MultiWriteToFile(file, all))
	return file
}

// pack writes what firstlight pack would.
func (u *uploads) pack(file string, o pack.Options) bundle.Bundle {
	u.b.t.Helper()
	f, err := os.Create(filepath.Join(u.dir, file))
	require.NoError(u.b.t, err)
	defer f.Close()
	b, err := pack.Pack(u.b.t.Context(), o, f)
	require.NoError(u.b.t, err)
	return b
}

// upload brings an archive of the owner default.
func (u *uploads) upload(file string) {
	u.b.t.Helper()
	u.records = append(u.records, artifact.Metadata{
		Owner: "default", ClusterName: "edge", ImageName: file, Complete: true, SHA256: file,
		Created: time.Unix(int64(len(u.records)), 0),
	})
	require.NoError(u.b.t, u.pusher.Sync(u.b.t.Context(), u.records))
}

func testMissingImage(t *testing.T, b *fixture) {
	b.t = t
	u := newUploads(b)
	manifest := filepath.Join(u.dir, "lone.yaml")
	require.NoError(t, os.WriteFile(manifest, []byte(deployment1("lone", "lone")), 0o644))
	u.pack("lone.tar", pack.Options{
		Source:    manifest,
		Name:      "lone",
		Version:   "1",
		Namespace: "default",
		Absent:    []string{"example.org/app:1"},
	})
	u.upload("lone.tar")

	b.apply("lone", "source: {bundle: {name: lone, version: '2'}}")
	c := b.until("lone", v1alpha1.PhaseWaiting, plan.ReasonBundleMissing)
	assert.Contains(t, c.Status.Message, "bundle lone 2 is not on the appliance, which has 1; bring the archive")
	b.apply("lone", "source: {bundle: {name: lone, version: '1'}}")
	c = b.until("lone", v1alpha1.PhaseWaiting, plan.ReasonImageMissing)
	assert.Contains(t, c.Status.Message, "bundle lone 1: the appliance has no example.org/app:1; upload an archive with it")
	var d appsv1.Deployment
	key := client.ObjectKey{Namespace: "default", Name: "lone"}
	assert.True(t, apierrors.IsNotFound(b.edge.Get(t.Context(), key, &d)), "nothing is applied before")

	u.images("app.tar", "example.org/app:1")
	u.upload("app.tar")
	b.until("lone", v1alpha1.PhaseHealth, plan.ReasonNotHealthy)
	b.run("lone")
	b.until("lone", v1alpha1.PhaseReady, plan.ReasonReady)
	b.remove("lone")
}

// job waits for a Job of the shop that is not the one of before, ends it, and returns its UID.
func (b *fixture) job(name, before string, ends ...batchv1.JobConditionType) (uid string) {
	b.t.Helper()
	require.EventuallyWithT(b.t, func(t *assert.CollectT) {
		var j batchv1.Job
		require.NoError(t, b.edge.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: name}, &j))
		require.NotEqual(t, before, string(j.UID))
		uid = string(j.UID)
		now := metav1.Now()
		j.Status.StartTime = &now
		for _, end := range ends {
			j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{
				Type: end, Status: corev1.ConditionTrue, LastTransitionTime: now, Message: "no database", Reason: "BackoffLimitExceeded",
			})
			if end == batchv1.JobComplete {
				j.Status.CompletionTime = &now
			}
		}
		require.NoError(t, b.edge.Status().Update(context.Background(), &j))
	}, time.Minute, 100*time.Millisecond, name)
	return uid
}

func (b *fixture) succeed(name, before string) string {
	b.t.Helper()
	return b.job(name, before, batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)
}

func (b *fixture) fail(name, before string) string {
	b.t.Helper()
	return b.job(name, before, batchv1.JobFailureTarget, batchv1.JobFailed)
}

// runShop says of the shop's workloads what their controllers would once the pods run.
func (b *fixture) runShop(replicas int32) {
	b.t.Helper()
	require.EventuallyWithT(b.t, func(t *assert.CollectT) {
		var s appsv1.StatefulSet
		require.NoError(t, b.edge.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: "database"}, &s))
		require.Equal(t, replicas, *s.Spec.Replicas)
		s.Status = appsv1.StatefulSetStatus{
			ObservedGeneration: s.Generation,
			Replicas:           replicas,
			ReadyReplicas:      replicas,
			CurrentReplicas:    replicas,
			UpdatedReplicas:    replicas,
			AvailableReplicas:  replicas,
			CurrentRevision:    "r",
			UpdateRevision:     "r",
		}
		require.NoError(t, b.edge.Status().Update(context.Background(), &s))

		var d appsv1.Deployment
		require.NoError(t, b.edge.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: "web"}, &d))
		require.Equal(t, replicas, *d.Spec.Replicas)
		d.Status = appsv1.DeploymentStatus{
			ObservedGeneration: d.Generation,
			Replicas:           replicas,
			UpdatedReplicas:    replicas,
			ReadyReplicas:      replicas,
			AvailableReplicas:  replicas,
			Conditions: []appsv1.DeploymentCondition{
				{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue},
				{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"},
			},
		}
		require.NoError(t, b.edge.Status().Update(context.Background(), &d))
	}, time.Minute, 100*time.Millisecond)
}

// transcript is what a person would see of a Component.
type transcript struct {
	*fixture
	strings.Builder
}

// do runs kubectl and writes it down.
func (r *transcript) do(args ...string) {
	r.t.Helper()
	r.kubectl(args...)
	var line []string
	for _, a := range args {
		if strings.ContainsAny(a, `{" `) {
			a = "'" + a + "'"
		}
		line = append(line, a)
	}
	fmt.Fprintf(r, "$ kubectl %s\n", strings.Join(line, " "))
}

// see waits for a state and writes down what the page's function show prints then.
func (r *transcript) see(phase, reason string) *v1alpha1.Component {
	r.t.Helper()
	c := r.until("shop", phase, reason)
	ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady)
	fmt.Fprintf(r, "$ show\n%s %s: %s\n", c.Status.Phase, ready.Reason, c.Status.Message)
	return c
}

func testPackedChart(t *testing.T, b *fixture, restart func()) {
	b.t = t
	u := newUploads(b)
	var names []string
	for _, n := range []string{"database", "order", "task", "wait", "web"} {
		names = append(names, "registry.example/shop/"+n+":1")
	}
	o := pack.Options{Source: chart, Namespace: "shop", Archives: []string{u.images("images.tar", names...)}}
	packed := u.pack("shop-1.0.0.tar", o)
	require.Len(t, packed.Images, 5)
	o.Version, o.Values = "2.0.0", []string{"replicas=2"}
	u.pack("shop-2.0.0.tar", o)

	manifest := filepath.Join(t.TempDir(), "shop.yaml")
	require.NoError(t, os.WriteFile(manifest, []byte(component("shop", "retryInterval: 5s\nsource: {bundle: {name: shop, version: 1.0.0}}")), 0o644))
	r := &transcript{fixture: b}
	b.kubectl("apply", "-f", manifest)
	require.NoError(t, b.components().GrantNamespaces(t.Context(), b.api))
	fmt.Fprint(r, "$ kubectl apply -f shop.yaml\n")
	r.see(v1alpha1.PhaseWaiting, plan.ReasonBundleMissing)
	u.upload("shop-1.0.0.tar")
	fmt.Fprint(r, "$ firstlight artifact push shop-1.0.0.tar container/shop-1.0.0 --owner default --cluster edge\n")

	// A hook that fails is a failed attempt; the next one begins with that hook.
	r.see(v1alpha1.PhaseApplying, plan.ReasonHookRuns)
	var s appsv1.StatefulSet
	database := client.ObjectKey{Namespace: "shop", Name: "database"}
	assert.True(t, apierrors.IsNotFound(b.edge.Get(t.Context(), database, &s)), "objects come after the hook")
	var m corev1.ConfigMap
	migration := client.ObjectKey{Namespace: "shop", Name: "migration"}
	require.NoError(t, b.edge.Get(t.Context(), migration, &m), "it has less weight")
	first := b.fail("prepare", "")
	c := r.see(v1alpha1.PhaseFailed, plan.ReasonHookFailed)
	assert.Contains(t, c.Status.Message, "hook pre-install: Job shop/prepare failed: no database; see its logs")
	prepared := b.succeed("prepare", first)
	r.see(v1alpha1.PhaseHealth, plan.ReasonNotHealthy)

	// What has run does not run again after a crash.
	restart()
	b.until("shop", v1alpha1.PhaseHealth, plan.ReasonNotHealthy)
	b.runShop(1)
	r.see(v1alpha1.PhaseHealth, plan.ReasonHookRuns)
	restart()
	b.succeed("announce", "")
	r.see(v1alpha1.PhaseReady, plan.ReasonReady)
	var j batchv1.Job
	require.NoError(t, b.edge.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "prepare"}, &j))
	assert.Equal(t, prepared, string(j.UID), "it ran once")
	assert.True(t, apierrors.IsNotFound(b.edge.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "announce"}, &j)), "hook-succeeded")
	for _, i := range packed.Images {
		ref, err := name.NewDigest(u.host + "/" + artifact.ServedImage("default", strings.Split(i.Name, ":1@")[0]) + "@" + i.Digest)
		require.NoError(t, err)
		_, err = remote.Head(ref)
		assert.NoError(t, err, i.Name)
	}
	require.NoError(t, b.edge.Get(t.Context(), database, &s))
	assert.Equal(t, packed.Images[0].Name, s.Spec.Template.Spec.Containers[0].Image)

	u.upload("shop-2.0.0.tar")
	fmt.Fprint(r, "$ firstlight artifact push shop-2.0.0.tar container/shop-2.0.0 --owner default --cluster edge\n")
	change := func(version string) {
		r.do("patch", "kc", "shop", "--type=merge", "-p", `{"spec":{"source":{"bundle":{"version":"`+version+`"}}}}`)
	}
	change("2.0.0")
	r.see(v1alpha1.PhaseApplying, plan.ReasonHookRuns)
	b.succeed("prepare", prepared)
	b.runShop(2)
	b.succeed("announce", "")
	r.see(v1alpha1.PhaseReady, plan.ReasonReady)

	change("1.0.0")
	c = r.see(v1alpha1.PhaseApplying, plan.ReasonHookRuns)
	assert.Contains(t, c.Status.Message, "hook pre-rollback: Job shop/restore")
	b.succeed("restore", "")
	b.runShop(1)
	c = r.see(v1alpha1.PhaseReady, plan.ReasonReady)
	assert.Regexp(t, "^1.0.0-[0-9a-f]{12}$", c.Status.Revision)

	// The removal needs no source.
	u.records = nil
	require.NoError(t, u.pusher.Sync(t.Context(), nil))
	r.do("delete", "kc", "shop", "--wait=false")
	r.see(v1alpha1.PhaseDeleting, plan.ReasonHookRuns)
	first = b.fail("farewell", "")
	c = r.see(v1alpha1.PhaseDeleting, plan.ReasonHookFailed)
	assert.Contains(t, c.Status.Message, v1alpha1.AnnotationNoHooks+"=true")
	require.NoError(t, b.edge.Get(t.Context(), database, &s), "nothing is removed before")
	r.do("--kubeconfig", b.edgeConfig, "--namespace", "shop", "delete", "job", "farewell")
	b.succeed("farewell", first)
	b.remove("shop")
	fmt.Fprintf(r, "$ kubectl get kc\n%s", b.kubectl("get", "kc"))

	left := b.kubectl("--kubeconfig", b.edgeConfig, "get", "jobs,deployments,statefulsets,services,configmaps,secrets", "--all-namespaces", "-l", "kpa.akraino.org/name=shop", "-o", "name")
	assert.Empty(t, left)
	assert.Empty(t, b.kubectl("--kubeconfig", b.edgeConfig, "--namespace", "kpa-system", "get", "configmaps,secrets", "--field-selector", "metadata.name!=kube-root-ca.crt", "-o", "name"))
	b.kubectl("--kubeconfig", b.edgeConfig, "get", "crd", "orders.shop.example") // of the chart's folder crds: it stays
	printed := strings.ReplaceAll(r.String(), b.edgeConfig, "edge.kubeconfig")
	goldentest.CheckBlock(t, "../../../docs/addons.md", "component", printed)
}
