// Package crdtest holds CustomResourceDefinitions to objects that have every field which Go knows, and the copies of such
// objects to their originals.
package crdtest

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// Definition is the part of a CustomResourceDefinition that tests read.
type Definition struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Group string `json:"group"`
		Names struct {
			Kind string `json:"kind"`
		} `json:"names"`
		Versions []struct {
			Name   string `json:"name"`
			Schema struct {
				OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

// Parse reads one YAML document. Of a document that is no definition the Spec is empty.
func Parse(t testing.TB, text []byte) (d Definition) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal(text, &d))
	return d
}

// Schema is that of the first version.
func (d Definition) Schema() map[string]any { return d.Spec.Versions[0].Schema.OpenAPIV3Schema }

// CheckReading holds that Go reads every field of an object, which is YAML, and writes it again.
func CheckReading(t testing.TB, text string, object any) {
	t.Helper()
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), object))
	want, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	got, err := json.Marshal(object)
	require.NoError(t, err)
	assert.JSONEq(t, string(want), string(got))
}

// CheckFields holds that the API server keeps every field of an object, which is YAML.
func (d Definition) CheckFields(t testing.TB, object string) {
	t.Helper()
	var fields map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(object), &fields))
	delete(fields, "metadata") // the API server knows it
	checkFields(t, d.Spec.Names.Kind, d.Schema(), fields)
}

func checkFields(t testing.TB, path string, schema map[string]any, value any) {
	t.Helper()
	if schema["x-kubernetes-preserve-unknown-fields"] == true && schema["properties"] == nil {
		return
	}

	switch v := value.(type) {
	case map[string]any:
		properties, _ := schema["properties"].(map[string]any)
		additional, open := schema["additionalProperties"].(map[string]any)
		for key, of := range v {
			next, ok := properties[key].(map[string]any)
			if open {
				next, ok = additional, true
			}
			if assert.True(t, ok, "%s.%s is not in the schema", path, key) {
				checkFields(t, path+"."+key, next, of)
			}
		}
	case []any:
		items, _ := schema["items"].(map[string]any)
		for _, of := range v {
			checkFields(t, path+"[]", items, of)
		}
	}
}
