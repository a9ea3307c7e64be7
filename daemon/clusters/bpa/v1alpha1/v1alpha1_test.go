package v1alpha1_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"firstlight.dev/firstlight/assets/crd"
	"firstlight.dev/firstlight/assets/crd/crdtest"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

func TestCopiesShareNothing(t *testing.T) {
	crdtest.CheckCopies(t, v1alpha1.GroupVersion, v1alpha1.AddToScheme)
}

// properties are the fields of a Go struct by JSON name.
func fields(t reflect.Type) map[string]reflect.Type {
	all := map[string]reflect.Type{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		all[name] = t.Field(i).Type
	}
	return all
}

// agree holds that a schema and a Go type know the same fields.
func agree(t *testing.T, path string, schema map[string]any, goType reflect.Type) {
	for goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	switch {
	case schema["x-kubernetes-preserve-unknown-fields"] == true, goType == reflect.TypeFor[metav1.Time]():
		return
	case goType.Kind() == reflect.Slice:
		agree(t, path+"[]", schema["items"].(map[string]any), goType.Elem())
	case goType.Kind() == reflect.Map:
		agree(t, path+"{}", schema["additionalProperties"].(map[string]any), goType.Elem())
	case goType.Kind() == reflect.Struct:
		properties := schema["properties"].(map[string]any)
		assert.Equal(t, slices.Sorted(maps.Keys(fields(goType))), slices.Sorted(maps.Keys(properties)), path)
		for name, f := range fields(goType) {
			if p, ok := properties[name].(map[string]any); ok {
				agree(t, path+"."+name, p, f)
			}
		}
	default:
		kind := map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean", reflect.Int32: "integer", reflect.Int64: "integer"}[goType.Kind()]
		assert.Equal(t, kind, schema["type"], path)
	}
}

// TestKindsAreDefined: names, short names, columns and fields of assets/crd are ICN's and
// those of the Go types.
func TestKindsAreDefined(t *testing.T) {
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(crd.BPA), 4096)
	want := map[string]struct {
		short        string
		columns      []string
		spec, status reflect.Type
	}{
		"Provisioning": {"bpa", []string{"CLUSTER", "PHASE", "READY", "NODES", "VERIFIED", "AGE", "MESSAGE"}, reflect.TypeFor[v1alpha1.ProvisioningSpec](), reflect.TypeFor[v1alpha1.ProvisioningStatus]()},
		"Software":     {"sw", []string{"CLUSTER", "PHASE", "READY", "NODES", "AGE", "MESSAGE"}, reflect.TypeFor[v1alpha1.SoftwareSpec](), reflect.TypeFor[v1alpha1.SoftwareStatus]()},
		"NodeUpdate": {
			"nu", []string{"CLUSTER", "PHASE", "READY", "NODES", "AGE", "MESSAGE"},
			reflect.TypeFor[v1alpha1.NodeUpdateSpec](), reflect.TypeFor[v1alpha1.NodeUpdateStatus](),
		},
	}
	for range want {
		u := &unstructured.Unstructured{}
		require.NoError(t, d.Decode(u))
		kind, _, _ := unstructured.NestedString(u.Object, "spec", "names", "kind")
		plural, _, _ := unstructured.NestedString(u.Object, "spec", "names", "plural")
		short, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "names", "shortNames")
		assert.Equal(t, []string{want[kind].short}, short)
		assert.Equal(t, strings.ToLower(kind)+"s", plural)
		assert.Equal(t, plural+".bpa.akraino.org", u.GetName())
		versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
		require.Len(t, versions, 1)
		version := versions[0].(map[string]any)
		assert.Equal(t, v1alpha1.GroupVersion.Version, version["name"])
		var columns []string
		for _, c := range version["additionalPrinterColumns"].([]any) {
			columns = append(columns, c.(map[string]any)["name"].(string))
		}
		assert.Equal(t, want[kind].columns, columns)
		properties, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties")
		agree(t, kind+".spec", properties["spec"].(map[string]any), want[kind].spec)
		agree(t, kind+".status", properties["status"].(map[string]any), want[kind].status)
	}
	assert.True(t, errors.Is(d.Decode(&unstructured.Unstructured{}), io.EOF), "a kind that nobody knows")
}
