package objects

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRender(t *testing.T) {
	dir := t.TempDir()
	write := func(file, text string) {
		path := filepath.Join(dir, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	write("base/kustomization.yaml", "resources: [service.yaml]\n")
	write("base/service.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: webhook, namespace: system}\n")
	write("default/kustomization.yaml", "namespace: capi-system\nnamePrefix: capi-\nresources: [../base]\n")

	text, err := Render(filepath.Join(dir, "default"), "")
	require.NoError(t, err)
	assert.Equal(t, "apiVersion: v1\nkind: Service\nmetadata:\n  name: capi-webhook\n  namespace: capi-system\n", text)

	_, err = Render(filepath.Join(dir, "gone"), "")
	assert.ErrorContains(t, err, "render kustomization: ")

	write("manager/kustomization.yaml", "resources: [deployment.yaml]\n")
	write("manager/deployment.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: manager}\n"+
		"spec: {template: {spec: {containers: [{name: manager, image: registry.example.com/manager:main}]}}}\n")
	text, err = Render(filepath.Join(dir, "manager"), "firstlight.internal/manager:v1")
	require.NoError(t, err)
	assert.Contains(t, text, "image: firstlight.internal/manager:v1")
	assert.NotContains(t, text, "registry.example.com")
}
