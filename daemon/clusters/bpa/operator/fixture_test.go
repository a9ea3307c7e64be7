package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"firstlight.dev/firstlight/assets/crd"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// cases run twice: in `make check` against controller-runtime's fake of an API, in
// milliseconds; and with FIRSTLIGHT_TEST=native against the appliance's own etcd and
// kube-apiserver with the real CRDs.
func cases() []testCase {
	return []testCase{
		{"Forms", testForms}, {"PluginsThatAreMissing", testPluginsThatAreMissing}, {"PluginsOfAnotherInstaller", testPluginsOfAnotherInstaller}, {"BootstrapNIC", testBootstrapNIC},
		{"Refusals", testRefusals}, {"HostRefusals", testHostRefusals}, {"Virtlet", testVirtlet}, {"OldFields", testOldFields},
		{"OneCluster", testOneCluster}, {"AppliedHost", testAppliedHost}, {"TwoForOneHost", testTwoForOneHost}, {"NoHalfClaims", testNoHalfClaims}, {"SameName", testSameName},
		{"FailsTwiceThenSucceeds", testFailsTwiceThenSucceeds}, {"DeadWorker", testDeadWorker}, {"InstallerRefuses", testInstallerRefuses}, {"NoKubeconfig", testNoKubeconfig},
		{"WorkerAddedAndRemoved", testWorkerAddedAndRemoved}, {"WorkerReinstalled", testWorkerReinstalled}, {"WorkerLeftUncleared", testWorkerLeftUncleared}, {"WorkerMoves", testWorkerMoves}, {"EditWhileTheJobRuns", testEditWhileTheJobRuns},
		{"ImageThatIsNotThere", testImageThatIsNotThere}, {"NoInstaller", testNoInstaller}, {"FixedOnceInstalled", testFixedOnceInstalled}, {"HostsInServiceMayFail", testHostsInServiceMayFail},
		{"Deleted", testDeleted}, {"DeletedWhileTheJobRuns", testDeletedWhileTheJobRuns}, {"Recreated", testRecreated}, {"Renamed", testRenamed},
		{"EtcdLost", testEtcdLost}, {"ObjectsDeletedByHand", testObjectsDeletedByHand}, {"KilledAtEveryWrite", testKilledAtEveryWrite},
		{"Credentials", testCredentials}, {"KeyOfTheNamespace", testKeyOfTheNamespace}, {"KeysOfClusters", testKeysOfClusters}, {"InstallerNotAllowed", testInstallerNotAllowed}, {"KubeconfigOfANode", testKubeconfigOfANode}, {"JobOfNoProvisioning", testJobOfNoProvisioning},
		{"Software", testSoftware}, {"SoftwareKeys", testSoftwareKeys}, {"SoftwareRefusals", testSoftwareRefusals}, {"SoftwareOfAnotherNamespace", testSoftwareOfAnotherNamespace},
		{"NodeUpdate", testNodeUpdate}, {"NodeUpdateKilledAtEveryWrite", testNodeUpdateKilledAtEveryWrite}, {"NodeUpdateFailures", testNodeUpdateFailures},
		{"NodeUpdateDeleted", testNodeUpdateDeleted}, {"NodeUpdatePaused", testNodeUpdatePaused}, {"NodeUpdateRefusals", testNodeUpdateRefusals}, {"Proposal", testProposal},
		{"Verified", testVerified}, {"Rotation", testRotation}, {"HostTakenMeanwhile", testHostTakenMeanwhile}, {"PodsOfAJobAreWaitedFor", testPodsOfAJobAreWaitedFor},
	}
}

type testCase struct {
	name string
	run  func(*testing.T, *fixture)
}

// fixture is an API, a directory of clusters, and the operator's parts, stepped by hand.
type fixture struct {
	*Provisionings
	t      *testing.T
	real   *rest.Config // nil: the fake
	api    client.Client
	now    time.Time
	events []string
	fatal  func() error // asked before each write; an error is a crash
	left   string       // the kubeconfig that an installer leaves; "": one that is none
}

func newFixture(t *testing.T, api client.Client, real *rest.Config) *fixture {
	r := &fixture{t: t, api: api, real: real, now: time.Now().Truncate(time.Second)}
	cached, direct := &calls{}, &calls{}
	t.Cleanup(func() { used.add(cached, direct) })
	guarded := interceptor.NewClient(cached.client(watchless{api}), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := r.write(); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := r.write(); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := r.write(); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if err := r.write(); err != nil {
				return err
			}
			return c.Apply(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := r.write(); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	r.Provisionings = &Provisionings{
		Config: Config{Namespace: "bpa", Dir: memoryDir(t), Installer: "firstlight.internal/installer:test", Allowed: []string{"example/kud:1"}, AddOns: []string{"metrics-server", "nfd"}},
		Client: guarded, Reader: direct.client(watchless{api}), Recorder: recorder{r}, Now: func() time.Time { return r.now }, Log: slog.New(slog.DiscardHandler),
		Logs: func(context.Context, string, string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader("what the installer printed\n")), nil
		},
	}
	r.LeaseFile = filepath.Join(r.Dir, "dhcpd.leases")
	for _, ns := range []string{"bpa", "metal3", "other"} {
		if err := api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
			require.True(t, apierrors.IsAlreadyExists(err), "%v", err)
		}
	}
	t.Cleanup(r.sweep)
	return r
}

func (r *fixture) write() error {
	if r.fatal != nil {
		return r.fatal()
	}
	return nil
}

// watchless makes a WithWatch of any client; nothing here watches through it.
type watchless struct{ client.Client }

func (watchless) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	return nil, errors.New("not watched here")
}

type recorder struct{ r *fixture }

func (e recorder) Eventf(o, _ runtime.Object, kind, reason, _, note string, args ...any) {
	e.r.events = append(e.r.events, kind+" "+reason+" "+fmt.Sprintf(note, args...))
}

// memoryDir is a directory that syncing costs nothing in, where there is one.
func memoryDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "bpa-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// onFake runs a test against the fake. It looks through its whole scheme at every request, so
// it gets a small one.
func onFake(t *testing.T, run func(*testing.T, *fixture)) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, batchv1.AddToScheme, policyv1.AddToScheme, metal3api.AddToScheme, v1alpha1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	var mu sync.Mutex
	serial := 0
	c := fake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&v1alpha1.Provisioning{}, &v1alpha1.Software{}, &v1alpha1.NodeUpdate{}, &metal3api.BareMetalHost{}, &batchv1.Job{}, &corev1.Pod{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			mu.Lock()
			serial++
			o.SetUID(types.UID(fmt.Sprintf("uid-%d", serial)))
			o.SetCreationTimestamp(metav1.NewTime(time.Unix(1_700_000_000+int64(serial), 0)))
			o.SetGeneration(1)
			mu.Unlock()
			return c.Create(ctx, o, opts...)
		}}).Build()
	run(t, newFixture(t, c, nil))
}

func TestOnTheFake(t *testing.T) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) { onFake(t, c.run) })
	}
	if !t.Failed() {
		t.Run("Rights", testRights)
	}
}

func TestOnARealAPIServer(t *testing.T) {
	server := sandbox.APIServer(t)
	config, err := clientcmd.BuildConfigFromFlags("", server.Kubeconfig)
	require.NoError(t, err)
	config.QPS, config.Burst = 1000, 1000
	scheme, err := Scheme()
	require.NoError(t, err)
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	applyCRDs(t, c)
	for _, one := range cases() {
		t.Run(one.name, func(t *testing.T) { one.run(t, newFixture(t, c, config)) })
	}
}

// applyCRDs applies ours and Metal3's, and waits until the server serves them.
func applyCRDs(t *testing.T, c client.Client) {
	host, err := sandbox.HostDefinition(t.Context())
	require.NoError(t, err)
	for _, text := range [][]byte{crd.BPA, host} {
		d := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			u := &unstructured.Unstructured{}
			if errors.Is(d.Decode(u), io.EOF) {
				break
			}
			require.NoError(t, c.Create(t.Context(), u))
			require.Eventually(t, func() bool {
				list := &unstructured.UnstructuredList{}
				group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
				kind, _, _ := unstructured.NestedString(u.Object, "spec", "names", "listKind")
				list.SetAPIVersion(group + "/v1alpha1")
				list.SetKind(kind)
				return c.List(t.Context(), list) == nil
			}, 2*time.Minute, 50*time.Millisecond)
		}
	}
}

// sweep removes what a test made.
func (r *fixture) sweep() {
	ctx := context.Background()
	for _, list := range []client.ObjectList{&v1alpha1.ProvisioningList{}, &v1alpha1.SoftwareList{}, &v1alpha1.NodeUpdateList{}, &corev1.NodeList{}, &policyv1.PodDisruptionBudgetList{}, &batchv1.JobList{}, &corev1.PodList{}, &corev1.ConfigMapList{}, &corev1.SecretList{}, &metal3api.BareMetalHostList{}} {
		require.NoError(r.t, r.api.List(ctx, list))
		items, err := meta.ExtractList(list)
		require.NoError(r.t, err)
		for _, item := range items {
			o := item.(client.Object)
			if strings.HasPrefix(o.GetNamespace(), "kube-") || o.GetName() == "kube-root-ca.crt" {
				continue
			}
			if len(o.GetFinalizers()) > 0 {
				before := o.DeepCopyObject().(client.Object)
				o.SetFinalizers(nil)
				require.NoError(r.t, client.IgnoreNotFound(r.api.Patch(ctx, o, client.MergeFrom(before))))
			}
			require.NoError(r.t, client.IgnoreNotFound(r.api.Delete(ctx, o, client.GracePeriodSeconds(0), client.PropagationPolicy(metav1.DeletePropagationBackground))))
		}
	}
}
