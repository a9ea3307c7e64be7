package use

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
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
	k := artifact.Key{Collection: artifact.OS, Owner: "alpha", Cluster: "beta", Name: "debian"}
	users, err := Finder{API: api}.Users(t.Context(), k)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"BareMetalHost metal3/wants", "BareMetalHost metal3/has"}, users)
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

// software is a Software with packages as its spec writes them, and what nodes have of "greeting".
func software(t *testing.T, name, asked string, have ...string) *unstructured.Unstructured {
	var spec, nodes []any
	require.NoError(t, json.Unmarshal([]byte(asked), &spec))
	for _, version := range have {
		nodes = append(nodes, map[string]any{"name": "node", "packages": []any{map[string]any{"name": "greeting", "installed": version}}})
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "bpa.akraino.org/v1alpha1", "kind": "Software",
		"metadata": map[string]any{"namespace": "metal3", "name": name},
		"spec":     map[string]any{"workerSoftware": spec}, "status": map[string]any{"nodes": nodes}}}
}

func TestSoftwareThatUsesAPackage(t *testing.T) {
	dir := t.TempDir()
	at := func(k artifact.Key) string { return filepath.Join(dir, k.Name) }
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "tree", "DEBIAN"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tree", "DEBIAN", "control"),
		[]byte("Package: greeting\nVersion: 1.0\nArchitecture: all\nMaintainer: Alpha <alpha@example.org>\nDescription: a greeting\n"), 0o644))
	require.NoError(t, os.Chmod(filepath.Join(dir, "tree"), 0o755))
	out, err := exec.Command("dpkg-deb", "--root-owner-group", "--build", filepath.Join(dir, "tree"), filepath.Join(dir, "greeting_1.0")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tool"), []byte("#!/bin/sh\n"), 0o755))

	lists := map[schema.GroupVersionResource]string{softwares: "SoftwareList"}
	ask := func(k artifact.Key, objects ...runtime.Object) []string {
		f := Finder{fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, objects...), at}
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
		users := ask(k, software(t, "greeter", c.asked, c.have...))
		if c.uses {
			assert.Equal(t, []string{"Software metal3/greeter"}, users, "%+v", c)
		} else {
			assert.Empty(t, users, "%+v", c)
		}
	}
	for _, name := range []string{"tool", "not-there"} {
		k.Name = name
		assert.Empty(t, ask(k, software(t, "greeter", `["greeting"]`)), name)
	}
}
