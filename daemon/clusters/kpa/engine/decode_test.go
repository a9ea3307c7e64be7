package engine

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestDocumentsAndListsAreObjects(t *testing.T) {
	objects, err := ReadObjects([]byte(`# nothing yet
---
{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "json"}, "status": {"of": "before"}}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Service, metadata: {name: one}}
- {apiVersion: v1, kind: Service, metadata: {name: two}}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
data: {kept: a2VwdA==}
stringData: {text: plain}
`))
	require.NoError(t, err)
	var names []string
	for _, o := range objects {
		names = append(names, describe(o))
	}
	assert.Equal(t, []string{"ConfigMap json", "Service one", "Service two", "Secret s"}, names)
	assert.NotContains(t, objects[0].Object, "status")
	assert.NotContains(t, objects[3].Object, "stringData")
	data, _, err := unstructured.NestedStringMap(objects[3].Object, "data")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"kept": "a2VwdA==", "text": "cGxhaW4="}, data)
}

func TestWhatIsNoObjectIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"kind: [": "document 1",
		"apiVersion: v1\nkind: A\n---\nmetadata: {}\n": "document 2: it has no apiVersion or no kind",
		"- a list":                "document 1",
		"just text":               "document 1",
		"apiVersion: v1\nkind: A": "has no metadata.name",
		"# nothing":               "the source has no objects",
		"apiVersion: v1\nkind: List\nitems: [{kind: A}]":                               "it has no apiVersion or no kind",
		strings.Repeat("apiVersion: v1\nkind: A\nmetadata: {name: twice}\n---\n", 2):   "A twice twice",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {number: 1}\n": "stringData",
	} {
		_, err := ReadObjects([]byte(text))
		assert.ErrorContains(t, err, want, text)
	}
}

func TestObjectsAreAppliedInTheOrderOfTheirKinds(t *testing.T) {
	of := func(version, kind, name string) *unstructured.Unstructured {
		return entry{version, kind, "", name}.object()
	}
	objects := []*unstructured.Unstructured{
		of("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "hook"),
		of("example.org/v1", "Lamp", "red"),
		of("apps/v1", "Deployment", "b"),
		of("v1", "Namespace", "n"),
		of("apps/v1", "Deployment", "a"),
		of("v1", "ServiceAccount", "s"),
		of("apiextensions.k8s.io/v1", "CustomResourceDefinition", "lamps.example.org"),
	}
	sortForApply(objects)
	first, rest := splitStages(objects)
	name := func(all []*unstructured.Unstructured) (names []string) {
		for _, o := range all {
			names = append(names, o.GetName())
		}
		return names
	}
	assert.Equal(t, []string{"lamps.example.org", "n"}, name(first))
	assert.Equal(t, []string{"s", "a", "b", "red", "hook"}, name(rest))
}
