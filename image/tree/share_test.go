package tree_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/tree"
)

func TestEqualFilesBelowADirectoryAreOne(t *testing.T) {
	layer := tree.New(1700000000)
	for p, text := range map[string]string{"/usr/bin/kubelet": "kubernetes", "/usr/bin/other": "kubernetez", "/empty": ""} {
		require.NoError(t, layer.File(p, 0o755, tree.Bytes(text), "test"))
	}
	require.NoError(t, layer.Put("/usr/bin/kubeadm", layer.Get("/usr/bin/kubelet")))
	archive := filepath.Join(t.TempDir(), "layer.tar")
	f, err := os.Create(archive)
	require.NoError(t, err)
	require.NoError(t, layer.WriteTar(f))
	require.NoError(t, f.Close())

	root := tree.New(1700000000)
	require.NoError(t, root.File("/usr/bin/kubernetes", 0o755, tree.Bytes("kubernetes"), "test"))
	require.NoError(t, root.File("/usr/bin/data", 0o644, tree.Bytes("kubernetez"), "test"))
	require.NoError(t, root.File("/none", 0o755, tree.Bytes(""), "test"))
	require.NoError(t, root.AddTarBelow("/layers/one/fs", archive, "layer one"))
	require.NoError(t, root.AddTarBelow("/layers/two/fs", archive, "layer two"))
	require.NoError(t, root.LinkDuplicates("/layers"))

	same := func(a, b string) bool { return root.Get(a) == root.Get(b) }
	assert.True(t, same("/usr/bin/kubernetes", "/layers/one/fs/usr/bin/kubelet"))
	assert.True(t, same("/usr/bin/kubernetes", "/layers/two/fs/usr/bin/kubeadm"), "a hard link of the layer")
	assert.True(t, same("/layers/one/fs/usr/bin/other", "/layers/two/fs/usr/bin/other"), "in layers alone")
	assert.False(t, same("/usr/bin/data", "/layers/one/fs/usr/bin/other"), "their modes differ")
	assert.False(t, same("/none", "/layers/one/fs/empty"))
	text, err := root.ReadFile("/layers/one/fs/usr/bin/kubelet")
	require.NoError(t, err)
	assert.Equal(t, "kubernetes", string(text))
}
