package sitesource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/crd"
	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/console"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

const component = `apiVersion: kpa.akraino.org/v1alpha1
kind: Component
metadata: {name: shop}
spec:
  clusters: [edge]
  source: {folder: multus}
`

// serve gives a machine an API server of its own, and returns how its administrator asks it.
func (m *machine) serve(t *testing.T) (client.Client, *rest.Config) {
	server := sandbox.APIServer(t)
	config, err := clientcmd.BuildConfigFromFlags("", server.Kubeconfig)
	require.NoError(t, err)
	admin, err := client.New(config, client.Options{})
	require.NoError(t, err)
	m.Objects = API{Config: func() (*rest.Config, error) { return config, nil }, Ready: func() bool { return true }}.Apply
	return admin, config
}

func define(t *testing.T, c client.Client, definitions []byte) {
	stream := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(definitions), 4096)
	for {
		kind := &unstructured.Unstructured{}
		err := stream.Decode(kind)
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		require.NoError(t, c.Create(t.Context(), kind))
	}
}

// await asks again while the API server does not serve a kind yet.
func await(t *testing.T, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, 2*time.Minute, 50*time.Millisecond)
}

// lookUntil looks again while the API server does not know yet what it was just given: a kind, or an account's rights.
func (m *machine) lookUntil(t *testing.T, said string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Minute); !strings.Contains(m.look(), said); time.Sleep(50 * time.Millisecond) {
		require.True(t, time.Now().Before(end), console.SourceText(m.Status()))
	}
}

func newObject(apiVersion, kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(metav1.NamespaceDefault)
	o.SetName(name)
	return o
}

func isThere(c client.Client, o *unstructured.Unstructured) bool {
	return c.Get(context.Background(), client.ObjectKeyFromObject(o), o) == nil
}

// listObjects are the objects of a source that an API has.
func listObjects(t *testing.T, c client.Client) string {
	var all []string
	for _, kind := range []string{"bpa.akraino.org/v1alpha1 Provisioning", "kpa.akraino.org/v1alpha1 Component"} {
		apiVersion, kind, _ := strings.Cut(kind, " ")
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(apiVersion)
		list.SetKind(kind + "List")
		require.NoError(t, c.List(t.Context(), list, client.HasLabels{label.Source}))
		for _, o := range list.Items {
			all = append(all, describeObject(&o))
		}
	}
	return strings.Join(all, ", ")
}

// TestTwoAPIsGetTheObjectsOfOneSource: real API servers of two appliances, with the rights of the source's account.
func TestTwoAPIsGetTheObjectsOfOneSource(t *testing.T) {
	r := newGitServer(t)
	a := newMachine(t, r.document("rack-a", "first token", ""))
	b := newMachine(t, strings.Replace(r.document("rack-a", "first token", ""), "nodeDefaults", "# another\nnodeDefaults", 1))
	adminA, configA := a.serve(t)
	adminB, _ := b.serve(t)
	for _, c := range []client.Client{adminA, adminB} {
		define(t, c, crd.BPA)
	}
	edge, shop := newObject("bpa.akraino.org/v1alpha1", "Provisioning", "edge"), newObject("kpa.akraino.org/v1alpha1", "Component", "shop")
	await(t, func() bool {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(edge.GetAPIVersion())
		list.SetKind("ProvisioningList")
		return adminA.List(t.Context(), list) == nil && adminB.List(t.Context(), list) == nil
	})

	r.write("sites/rack-a/edge.yaml", provisioning)
	r.write("sites/rack-a/more/shop.yml", component)
	r.push("a cluster and what runs on it")
	for _, m := range []*machine{a, b} {
		m.lookUntil(t, "Component default/shop: its kind is not on the appliance yet")
		assert.Equal(t, status.SourceWorking, m.Status().State)
	}
	for _, c := range []client.Client{adminA, adminB} {
		assert.True(t, isThere(c, edge), "it does not wait for a kind that comes up last")
		define(t, c, crd.KPA)
	}
	for _, m := range []*machine{a, b} {
		m.lookUntil(t, ": current")
	}
	for _, c := range []client.Client{adminA, adminB} {
		require.True(t, isThere(c, shop))
		assert.Equal(t, labelOf(a.Status().From), shop.GetLabels()[label.Source])
	}

	var page strings.Builder
	tell := func(done string) {
		fmt.Fprintf(&page, "# %s\n", done)
		for i, m := range []*machine{a, b} {
			said := strings.TrimPrefix(r.generalize(console.SourceText(m.Status())), "source        ")
			fmt.Fprintf(&page, "appliance %d: %s\n              objects: %s\n", i+1, said, listObjects(t, []client.Client{adminA, adminB}[i]))
		}
		page.WriteString("\n")
	}
	tell("A Provisioning and a Component are pushed.")
	b.linked, a.now, b.now = false, a.now.Truncate(time.Hour).Add(time.Hour), b.now.Truncate(time.Hour).Add(time.Hour)
	r.write("sites/rack-a/cache.yaml", strings.ReplaceAll(component, "shop", "cache"))
	r.push("one more")
	a.look()
	b.look()
	tell("Another Component is pushed while the second appliance has no link.")
	b.linked = true
	b.look()
	tell("It has its link again.")
	goldentest.CheckPart(t, "../../../docs/sites.md", "objects", "```\n"+strings.TrimSpace(page.String())+"\n```\n")

	limited, err := client.New(impersonate(configA), client.Options{})
	require.NoError(t, err)
	for _, o := range []client.Object{
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}},
	} {
		assert.True(t, apierrors.IsForbidden(limited.Create(t.Context(), o)), "%T", o)
	}

	foreign := edge.DeepCopy()
	foreign.SetName("by-hand")
	foreign.SetResourceVersion("")
	foreign.SetLabels(map[string]string{"cluster": "by-hand"})
	foreign.SetManagedFields(nil)
	require.NoError(t, adminA.Create(t.Context(), foreign))
	r.write("sites/rack-a/edge.yaml", strings.ReplaceAll(provisioning, "edge", "by-hand"))
	r.push("a name that somebody else has on one appliance")
	assert.Contains(t, a.look(), "Provisioning default/by-hand is on the appliance already, and not of this source")
	assert.True(t, isThere(adminA, edge), "a refused revision removes nothing")
	assert.Contains(t, b.look(), ": current")
	assert.False(t, isThere(adminB, edge), "it is not in the source any more")

	r.write("sites/rack-a/edge.yaml", strings.Replace(component, "[edge]", "edge", 1))
	require.NoError(t, removeFile(r, "sites/rack-a/more/shop.yml"))
	r.push("a Component that is none")
	for _, m := range []*machine{a, b} {
		assert.Contains(t, m.look(), "apply Component default/shop: ")
		assert.Equal(t, status.SourceRefused, m.Status().State)
	}
	assert.True(t, isThere(adminA, shop))

	r.write("sites/rack-a/site.yaml", r.document("rack-a", "[redacted]", ""))
	require.NoError(t, removeFile(r, "sites/rack-a/edge.yaml"))
	r.push("only the site")
	for _, m := range []*machine{a, b} {
		assert.Contains(t, m.look(), ": current")
	}
	for _, c := range []client.Client{adminA, adminB} {
		assert.False(t, isThere(c, edge))
		assert.False(t, isThere(c, shop))
	}
	assert.True(t, isThere(adminA, foreign), "it is not of the source")
}
