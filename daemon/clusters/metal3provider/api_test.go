package metal3provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"firstlight.dev/firstlight/assets/crd"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

func newFake(t *testing.T) client.Client {
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	require.NoError(t, AddToScheme(scheme))
	var mu sync.Mutex
	serial := 0
	return fake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(
			&clusterv1.Cluster{}, &clusterv1.Machine{}, &host{}, &v1beta2.Metal3Cluster{}, &machine{},
			&v1beta2.Metal3DataTemplate{}, &v1beta2.Metal3DataClaim{}, &v1beta2.Metal3Data{}, &v1beta2.Metal3Remediation{},
			&v1alpha1.IPPool{}, &ipamv1.IPAddressClaim{},
		).
		WithIndex(&corev1.Pod{}, indexPodOfNode, func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				mu.Lock()
				serial++
				o.SetUID(types.UID(fmt.Sprintf("uid-%d", serial)))
				o.SetGeneration(1)
				mu.Unlock()
				return c.Create(ctx, o, opts...)
			},
		}).Build()
}

// newReal is the appliance's own API server, with all definitions.
func newReal(t *testing.T) client.Client {
	server := sandbox.APIServer(t)
	config, err := clientcmd.BuildConfigFromFlags("", server.Kubeconfig)
	require.NoError(t, err)
	config.QPS, config.Burst = 1000, 1000
	config.WarningHandlerWithContext = rest.NoWarnings{} // of finalizers without a slash, which are Metal3's
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	require.NoError(t, addAdmission(scheme))
	require.NoError(t, AddToScheme(scheme))
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	applyDefinitions(t, c)
	return c
}

// applyDefinitions applies ours, Metal3's and Cluster API's, and waits until the server serves them.
func applyDefinitions(t *testing.T, c client.Client) {
	hosts, err := sandbox.HostDefinition(t.Context())
	require.NoError(t, err)
	all := [][]byte{crd.Metal3Provider, hosts}
	for _, name := range []string{
		"cluster.x-k8s.io_clusters", "cluster.x-k8s.io_machines",
		"ipam.cluster.x-k8s.io_ipaddresses", "ipam.cluster.x-k8s.io_ipaddressclaims",
	} {
		text, err := os.ReadFile(filepath.Join(clusterAPI(t), "core/config/crd/bases", name+".yaml"))
		require.NoError(t, err)
		all = append(all, text)
	}

	for _, text := range all {
		d := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			u := &unstructured.Unstructured{}
			if errors.Is(d.Decode(u), io.EOF) {
				break
			}
			require.NoError(t, c.Create(t.Context(), u), "%s", u.GetName())
			versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
			version := versions[len(versions)-1].(map[string]any)["name"].(string)
			group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(u.Object, "spec", "names", "listKind")
			require.Eventually(t, func() bool {
				list := &unstructured.UnstructuredList{}
				list.SetAPIVersion(group + "/" + version)
				list.SetKind(kind)
				return c.List(t.Context(), list) == nil
			}, 2*time.Minute, 50*time.Millisecond, u.GetName())
		}
	}
}

// clusterAPI is the folder of Cluster API's own sources, of the version whose types are used here.
func clusterAPI(t *testing.T) string {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", "sigs.k8s.io/cluster-api/api")
	version, err := cmd.Output()
	require.NoError(t, err)
	cmd = exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "sigs.k8s.io/cluster-api@"+string(bytes.TrimSpace(version)))
	out, err := cmd.Output()
	require.NoError(t, err)
	var module struct{ Dir string }
	require.NoError(t, json.Unmarshal(out, &module))
	return module.Dir
}
