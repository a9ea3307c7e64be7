package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"firstlight.dev/firstlight/daemon/engine/apply"
)

func TestManifests(t *testing.T) {
	object := func(kind, name string) apply.Applied {
		return apply.Applied{Owner: "firstlight-metal3", Object: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name},
		}}}
	}
	all := []apply.Applied{object("ConfigMap", "a"), object("ConfigMap", "b"), object("Service", "a")}
	assert.Len(t, selectApplied(all, "configmap"), 2)
	assert.Len(t, selectApplied(all, "ConfigMap/b"), 1)
	assert.Empty(t, selectApplied(all, "configmap/"))
	assert.Empty(t, selectApplied(all, "pod"))

	var out bytes.Buffer
	require.NoError(t, writeApplied(&out, selectApplied(all, "service/a")))
	assert.Equal(t, "---\n# owner: firstlight-metal3\napiVersion: v1\nkind: Service\nmetadata:\n  name: a\n", out.String())
	assert.Equal(t, 1, run(t.Context(), []string{"manifests", "--kubeconfig", "/nonexistent"}))
}
