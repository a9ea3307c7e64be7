package oci_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/layer"
	"firstlight.dev/firstlight/image/oci"
	"firstlight.dev/firstlight/image/tree"
)

const epoch = 1700000000

// program writes a layer of one program and returns file and digest.
func program(t *testing.T, text string) (string, string) {
	t.Helper()
	tr := tree.New(epoch)
	require.NoError(t, tr.File("/bin/program", 0o755, tree.Bytes(text), "test"))
	file := filepath.Join(t.TempDir(), "layer.tar")
	require.NoError(t, oci.WriteLayer(tr, file))
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	return file, fmt.Sprintf("%x", sha256.Sum256(content))
}

// onDisk writes a layout's tree to a directory.
func onDisk(t *testing.T, l *oci.Layout) string {
	t.Helper()
	tr := tree.New(epoch)
	require.NoError(t, l.WriteInto(tr, "/images"))
	dir := t.TempDir()
	require.NoError(t, tr.Walk(func(p string, n *tree.Node) error {
		if n.Type == tree.Dir {
			return os.MkdirAll(filepath.Join(dir, p), 0o755)
		}
		r, err := n.Content.Open()
		if err != nil {
			return err
		}
		defer r.Close()
		text, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, p), text, 0o644)
	}))
	return filepath.Join(dir, "images")
}

func TestLayoutIsReadByOthersAndSharesLayers(t *testing.T) {
	file, digest := program(t, "kubernetes")
	var want map[string]string // digests of what has a name
	make := func() string {
		l := oci.New(epoch)
		first, err := l.Add(file, digest, oci.Config{Entrypoint: []string{"/bin/program"}, User: "1:1", Env: map[string]string{"B": "2", "A": "1"}},
			[]string{"firstlight.internal/a:v1", "firstlight.internal/a:v2"})
		require.NoError(t, err)
		second, err := l.Add(file, digest, oci.Config{Entrypoint: []string{"/bin/other"}}, []string{"firstlight.internal/b:v1"})
		require.NoError(t, err)
		assert.NotEqual(t, first, second)
		want = map[string]string{"firstlight.internal/a:v1": first, "firstlight.internal/a:v2": first, "firstlight.internal/b:v1": second}
		_, err = l.Add(file, digest, oci.Config{}, []string{"firstlight.internal/b:v1"})
		assert.ErrorContains(t, err, "firstlight.internal/b:v1 is there already")
		return onDisk(t, l)
	}
	dir := make()
	index, err := layout.ImageIndexFromPath(dir)
	require.NoError(t, err)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	names := map[string]string{}
	for _, m := range manifest.Manifests {
		names[m.Annotations["org.opencontainers.image.ref.name"]] = m.Digest.String()
	}
	assert.Equal(t, want, names)
	require.Len(t, manifest.Manifests, 3)
	assert.Equal(t, "firstlight.internal/a:v1", manifest.Manifests[0].Annotations["io.containerd.image.name"])
	assert.Equal(t, "firstlight.internal/a:v1", manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"])
	image, err := index.Image(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, []string{"A=1", "B=2"}, config.Config.Env)
	assert.Equal(t, "1:1", config.Config.User)
	assert.Equal(t, int64(epoch), config.Created.Unix())

	blobs, err := os.ReadDir(filepath.Join(dir, "blobs", "sha256"))
	require.NoError(t, err)
	assert.Len(t, blobs, 2*2, "two configurations, two manifests")

	for _, blob := range blobs {
		content, err := os.ReadFile(filepath.Join(dir, "blobs", "sha256", blob.Name()))
		require.NoError(t, err)
		assert.Equal(t, blob.Name(), fmt.Sprintf("%x", sha256.Sum256(content)))
	}

	layers, err := os.ReadDir(filepath.Join(dir, "layers"))
	require.NoError(t, err)
	require.Len(t, layers, 1, "it is shared")
	assert.Equal(t, digest, layers[0].Name())
	assert.Equal(t, digest, digestOf(t, filepath.Join(dir, "layers", digest)), "made again of its files")

	first, err := os.ReadFile(filepath.Join(dir, "index.json"))
	require.NoError(t, err)
	second, err := os.ReadFile(filepath.Join(make(), "index.json"))
	require.NoError(t, err)
	assert.Equal(t, string(first), string(second))
}

// digestOf is the digest of the archive that a layer's directory makes.
func digestOf(t *testing.T, dir string) string {
	t.Helper()
	l, err := layer.Open(os.DirFS(dir))
	require.NoError(t, err)
	h := sha256.New()
	_, err = io.Copy(h, l.Reader(0))
	require.NoError(t, err)
	return fmt.Sprintf("%x", h.Sum(nil))
}

func TestImagesOfARegistryAreUnpackedToo(t *testing.T) {
	archive := func(names ...string) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, name := range names {
			require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(name))}))
			_, err := io.WriteString(w, name)
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
		return b.Bytes()
	}
	image := empty.Image
	for _, text := range [][]byte{archive("etc/a", "etc/b"), archive("etc/.wh.a"), archive("etc/.wh..wh..opq", "etc/c"), archive()} {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil })
		require.NoError(t, err)
		image, err = mutate.AppendLayers(image, l)
		require.NoError(t, err)
	}
	dir := filepath.Join(t.TempDir(), "pulled")
	require.NoError(t, oci.Save(image, dir))
	l := oci.New(epoch)
	require.NoError(t, l.AddPulled(dir, []string{"firstlight.internal/pulled:v1"}))
	tr := tree.New(epoch)
	require.NoError(t, l.WriteInto(tr, "/images"))
	layers, err := image.Layers()
	require.NoError(t, err)
	var files []string
	for _, l := range layers {
		id, err := l.DiffID()
		require.NoError(t, err)
		files = append(files, "/images/layers/"+id.Hex+"/fs")
		packed, err := l.Digest()
		require.NoError(t, err)
		assert.NotNil(t, tr.Get("/images/blobs/sha256/"+packed.Hex), "as it came, for nodes")
	}
	assert.NotNil(t, tr.Get(files[0]+"/etc/b"))
	removed := tr.Get(files[1] + "/etc/a")
	require.NotNil(t, removed)
	assert.Equal(t, tree.Node{Type: tree.Char, From: removed.From}, *removed, "as overlayfs says that a file is removed")
	assert.Nil(t, tr.Get(files[1]+"/etc/.wh.a"))
	assert.Equal(t, map[string]string{"trusted.overlay.opaque": "y"}, tr.Get(files[2]+"/etc").Xattrs)
	assert.Equal(t, tree.Dir, tr.Get(files[3]).Type)
	assert.Equal(t, int64(0o700), tr.Get("/images/layers").Perm)
}

func TestPullWantsADigest(t *testing.T) {
	err := oci.Pull(t.Context(), "registry.example/name:tag", filepath.Join(t.TempDir(), "x"))
	assert.ErrorContains(t, err, "pull image")
}
