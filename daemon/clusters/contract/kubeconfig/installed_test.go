package kubeconfig

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestInstalledClustersHaveAKubeconfig(t *testing.T) {
	dir := t.TempDir()
	_, err := ReadInstalled(dir, "edge")
	assert.ErrorContains(t, err, "cluster edge has no kubeconfig yet (see kubectl get bpa -A); installed are: none")
	for _, name := range []string{"edge", "rim"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name, "artifacts"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name, "artifacts", "admin.conf"), []byte("of "+name), 0o600))
	}
	text, err := ReadInstalled(dir, "edge")
	require.NoError(t, err)
	assert.Equal(t, "of edge", string(text))

	require.NoError(t, os.WriteFile(filepath.Join(dir, "edge", "artifacts", "admin.conf"),
		[]byte("{apiVersion: v1, kind: Config, users: [{name: u, user: {tokenFile: /etc/shadow}}]}"), 0o600))
	_, err = ReadInstalled(dir, "edge")
	assert.ErrorContains(t, err, "is not handed out: it names a file")
	_, err = ReadInstalled(dir, "egde")
	assert.ErrorContains(t, err, "installed are: edge, rim")
	for _, name := range []string{"../edge", "/edge", "a/b", ""} {
		_, err = ReadInstalled(dir, name)
		assert.ErrorIs(t, err, ErrNoName, name)
	}
}
