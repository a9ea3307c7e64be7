package use

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"firstlight.dev/firstlight/assets/artifact"
)

func host(name, wanted, installed string) *unstructured.Unstructured {
	image := func(u string) map[string]any { return map[string]any{"image": map[string]any{"url": u}} }
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
		"metadata": map[string]any{"namespace": "metal3", "name": name},
		"spec":     image(wanted), "status": map[string]any{"provisioning": image(installed)}}}
}

func TestHostsThatUseAnImage(t *testing.T) {
	const at = "http://172.22.0.1:6180/artifacts/"
	lists := map[schema.GroupVersionResource]string{hosts: "BareMetalHostList"}
	api := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists,
		host("wants", at+"alpha/beta/debian", ""), host("has", "", at+"alpha/beta/debian"), host("other", at+"gamma/beta/debian", "::"),
		host("stick", "http://172.22.0.1:6180/images/debian-13.raw", ""))
	awaits := host("awaits", "", "") // handed over by the site, not inspected yet
	awaits.SetAnnotations(map[string]string{artifact.ImageAnnotation: at + "alpha/beta/debian"})
	require.NoError(t, api.Tracker().Create(hosts, awaits, "metal3"))
	k := artifact.Key{Collection: artifact.OS, Owner: "alpha", Cluster: "beta", Name: "debian"}
	users, err := Finder{API: api}.Users(t.Context(), k)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"BareMetalHost metal3/wants", "BareMetalHost metal3/has", "BareMetalHost metal3/awaits"}, users)
	k.Name = "debian-12"
	users, err = Finder{API: api}.Users(t.Context(), k)
	require.NoError(t, err)
	assert.Empty(t, users)

	for failure, refused := range map[error]bool{apierrors.NewNotFound(hosts.GroupResource(), ""): false, errors.New("connection refused"): true} {
		down := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
		down.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, failure })
		_, err = Finder{API: down}.Users(t.Context(), k)
		assert.Equal(t, refused, err != nil, "%v", failure)
		k.Collection = artifact.Binary
		_, err = Finder{API: down}.Users(t.Context(), k)
		assert.NoError(t, err, "nobody is asked for what nobody installs")
		k.Collection = artifact.OS
	}
}

// thing is a Software with packages as its spec writes them, and what nodes have of "greeting".
func thing(t *testing.T, name, asked string, have ...string) *unstructured.Unstructured {
	var spec, nodes []any
	require.NoError(t, json.Unmarshal([]byte(asked), &spec))
	for _, version := range have {
		nodes = append(nodes, map[string]any{"name": "node", "packages": []any{map[string]any{"name": "greeting", "installed": version}}})
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "bpa.akraino.org/v1alpha1", "kind": "Software",
		"metadata": map[string]any{"namespace": "alpha", "name": name},
		"spec":     map[string]any{"workerSoftware": spec}, "status": map[string]any{"nodes": nodes}}}
}

func TestSoftwareThatUsesAPackage(t *testing.T) {
	named := func(k artifact.Key) (name, version string, err error) {
		name, version, _ = strings.Cut(k.Name, "_")
		return name, version, nil
	}
	lists := map[schema.GroupVersionResource]string{softwares: "SoftwareList"}
	ask := func(k artifact.Key, objects ...runtime.Object) []string {
		f := Finder{fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, objects...), named}
		users, err := f.Users(t.Context(), k)
		require.NoError(t, err)
		return users
	}
	k := artifact.Key{Collection: artifact.Binary, Owner: "alpha", Cluster: "beta", Name: "greeting_1.0"}
	for _, c := range []struct {
		asked string
		have  []string
		uses  bool
	}{
		{`["greeting"]`, nil, true},
		{`["curl", "greeting"]`, []string{""}, true},
		{`["greeting"]`, []string{"1.1", "1.0"}, true},
		{`["greeting"]`, []string{"1.1"}, false},
		{`[{"greeting": null}]`, []string{"1.1", ""}, true},
		{`[{"greeting": {"version": "1.0"}}]`, []string{"1.1"}, true},
		{`[{"greeting": {"version": "1.1"}}]`, nil, false},
		{`["greeting-data", {"curl": {"version": "1.0"}}]`, nil, false},
		{`[17]`, nil, false},
	} {
		users := ask(k, thing(t, "greeter", c.asked, c.have...))
		if c.uses {
			assert.Equal(t, []string{"Software alpha/greeter"}, users, "%+v", c)
		} else {
			assert.Empty(t, users, "%+v", c)
		}
	}
	others := thing(t, "greeter", `["greeting"]`)
	others.SetNamespace("gamma")
	assert.Empty(t, ask(k, others), "who installs no package of alpha keeps alpha from removing one")
	others.SetNamespace("default")
	assert.NotEmpty(t, ask(k, others), "the site's clusters may have alpha's packages")
	k.Name = "" // what is no package
	assert.Empty(t, ask(k, thing(t, "greeter", `["greeting"]`)))
}
