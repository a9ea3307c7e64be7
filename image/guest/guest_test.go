package guest

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/guest"
)

func TestManifestsAreWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "rack")
	const site = "name: rack\nnodes: [{name: a, bmc: {password: secret-of-bmc}}]\n"
	place := guest.Placement{Folder: "/srv/rack", Registry: "registry.example/lab"}
	require.NoError(t, WriteManifests(dir, []byte(site), place))

	info, err := os.Stat(filepath.Join(dir, "site.yaml"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "it has passwords")
	text, err := os.ReadFile(filepath.Join(dir, "firstlight.yaml"))
	require.NoError(t, err)
	assert.NotContains(t, string(text), "secret-of-bmc")
	order, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	require.NoError(t, err)
	assert.NotContains(t, string(order), "secret-of-bmc")
	assert.Contains(t, string(order), "secretGenerator")
	info, err = os.Stat(filepath.Join(dir, "remove.sh"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode().Perm())

	var deployment appsv1.Deployment
	for _, document := range strings.Split(string(text), "---\n") {
		if strings.Contains(document, "kind: Deployment") {
			require.NoError(t, yaml.UnmarshalStrict([]byte(document), &deployment))
		}
	}
	pod := deployment.Spec.Template.Spec
	require.Len(t, pod.Containers, 2)
	assert.Equal(t, map[string]string{"firstlight.dev/appliance": "", "kubernetes.io/arch": "amd64"}, pod.NodeSelector)
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			assert.True(t, strings.HasPrefix(v.HostPath.Path, "/srv/rack/"), v.HostPath.Path)
		}
	}
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		assert.True(t, strings.HasPrefix(c.Image, "registry.example/lab/appliance:"), c.Image)
		assert.Nil(t, c.SecurityContext.Privileged)
		for _, m := range c.VolumeMounts {
			assert.True(t, path.IsAbs(m.MountPath))
		}
	}
	read, err := guest.Parse(pod.Containers[0].Env[0].Value)
	require.NoError(t, err)
	assert.Equal(t, place, read)
	assert.Error(t, WriteManifests(dir, nil, guest.Placement{Folder: "relative"}))
}

// makeRoot makes a root tree with a program that has two names, and a layout of images with one blob each.
func makeRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	blobs := filepath.Join(root, layoutDir, "blobs", "sha256")
	require.NoError(t, os.MkdirAll(blobs, 0o755))
	put := func(mediaType string, text []byte) imagespec.Descriptor {
		d := imagespec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(text), Size: int64(len(text))}
		require.NoError(t, os.WriteFile(filepath.Join(blobs, d.Digest.Encoded()), text, 0o644))
		return d
	}
	encode := func(v any) []byte {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		return text
	}
	var layer bytes.Buffer
	require.NoError(t, tar.NewWriter(&layer).Close())
	var index imagespec.Index
	for _, name := range append(repositories(), "etcd") {
		config := put(imagespec.MediaTypeImageConfig, encode(imagespec.Image{
			Author:   name,
			Platform: imagespec.Platform{OS: "linux", Architecture: "amd64"},
			RootFS:   imagespec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(layer.Bytes())}},
		}))
		d := put(imagespec.MediaTypeImageManifest, encode(imagespec.Manifest{
			Versioned: specs.Versioned{SchemaVersion: 2},
			MediaType: imagespec.MediaTypeImageManifest,
			Config:    config,
			Layers:    []imagespec.Descriptor{put(imagespec.MediaTypeImageLayer, layer.Bytes())},
		}))
		d.Annotations = map[string]string{imagespec.AnnotationRefName: "firstlight.internal/" + name + ":1"}
		index.Manifests = append(index.Manifests, d)
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, layoutDir, "index.json"), encode(index), 0o644))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "usr/bin"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "usr/bin/firstlightd"), []byte("program"), 0o755))
	require.NoError(t, os.Link(filepath.Join(root, "usr/bin/firstlightd"), filepath.Join(root, "usr/bin/second")))
	require.NoError(t, os.Symlink("usr/bin", filepath.Join(root, "bin")))
	return root
}

// TestTheArchiveIsComplete: all images are read as a registry would, each with its platform, and the root is in one.
func TestTheArchiveIsComplete(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "images.tar"))
	require.NoError(t, err)
	defer file.Close()
	names, err := WriteArchive(file, makeRoot(t))
	require.NoError(t, err)
	require.Len(t, names, len(repositories())+1)
	assert.NotContains(t, names, "firstlight.internal/etcd:1", "it is of a Kubernetes of the appliance's own")

	dir := t.TempDir()
	unpack(t, file, dir)
	all, err := layout.ImageIndexFromPath(dir)
	require.NoError(t, err)
	manifest, err := all.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, len(names))
	layers := map[string][]byte{} // of images, which have one each
	for i, d := range manifest.Manifests {
		assert.Equal(t, names[i], d.Annotations[containerdName])
		index, err := all.ImageIndex(d.Digest)
		require.NoError(t, err)
		for _, other := range []string{"amd64", "arm64"} {
			found, err := partial.FindManifests(index, match.Platforms(v1.Platform{OS: "linux", Architecture: other}))
			require.NoError(t, err)
			assert.Len(t, found, map[string]int{"amd64": 1}[other], "%s of %s", other, names[i])
			for _, d := range found {
				layers[names[i]] = readLayer(t, index, d.Digest)
			}
		}
	}

	links := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(layers[rootImage])); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		links[h.Name] = h.Linkname
	}
	assert.Equal(t, "usr/bin", links["bin"])
	assert.Equal(t, "usr/bin/firstlightd", links["usr/bin/second"], "a second name is stored as a second file")
}

// readLayer returns the only layer of an image, unpacked, and checks that it is what the image says.
func readLayer(t *testing.T, index v1.ImageIndex, image v1.Hash) []byte {
	t.Helper()
	i, err := index.Image(image)
	require.NoError(t, err)
	config, err := i.ConfigFile()
	require.NoError(t, err)
	layers, err := i.Layers()
	require.NoError(t, err)
	require.Len(t, layers, 1)
	unpacked, err := layers[0].Uncompressed()
	require.NoError(t, err)
	defer unpacked.Close()
	text, err := io.ReadAll(unpacked)
	require.NoError(t, err)
	assert.Equal(t, config.RootFS.DiffIDs[0].Hex, digest.FromBytes(text).Encoded())
	return text
}

// unpack writes the files of an archive to a directory.
func unpack(t *testing.T, file *os.File, dir string) {
	t.Helper()
	_, err := file.Seek(0, io.SeekStart)
	require.NoError(t, err)
	for r := tar.NewReader(file); ; {
		h, err := r.Next()
		if err == io.EOF {
			return
		}
		require.NoError(t, err)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, path.Dir(h.Name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, h.Name), text, 0o644))
		if sum, isBlob := strings.CutPrefix(h.Name, "blobs/sha256/"); isBlob {
			assert.Equal(t, sum, digest.FromBytes(text).Encoded())
		}
	}
}

func TestARootOfAnotherVersionIsRefused(t *testing.T) {
	root := makeRoot(t)
	require.NoError(t, os.WriteFile(filepath.Join(root, layoutDir, "index.json"), []byte(`{"manifests":[]}`), 0o644))
	file, err := os.Create(filepath.Join(t.TempDir(), "images.tar"))
	require.NoError(t, err)
	defer file.Close()
	_, err = WriteArchive(file, root)
	assert.ErrorContains(t, err, "has no image")
}
