package guest

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
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
	assert.Equal(t, map[string]string{guest.NodeLabel: ""}, pod.NodeSelector)
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
	layout := filepath.Join(root, layoutDir)
	blobs := filepath.Join(layout, "blobs", "sha256")
	require.NoError(t, os.MkdirAll(blobs, 0o755))
	put := func(text []byte) imagespec.Descriptor {
		sum := fmt.Sprintf("%x", sha256.Sum256(text))
		require.NoError(t, os.WriteFile(filepath.Join(blobs, sum), text, 0o644))
		var d imagespec.Descriptor
		require.NoError(t, json.Unmarshal(fmt.Appendf(nil, `{"digest":"sha256:%s","size":%d}`, sum, len(text)), &d))
		return d
	}
	var index imagespec.Index
	for _, name := range append(repositories(), "etcd") {
		manifest, err := json.Marshal(imagespec.Manifest{Config: put([]byte(name)), Layers: []imagespec.Descriptor{put([]byte("layer"))}})
		require.NoError(t, err)
		d := put(manifest)
		d.Annotations = map[string]string{imagespec.AnnotationRefName: "firstlight.internal/" + name + ":1"}
		index.Manifests = append(index.Manifests, d)
	}
	text, err := json.Marshal(index)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(layout, "index.json"), text, 0o644))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "usr/bin"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "usr/bin/firstlightd"), []byte("program"), 0o755))
	require.NoError(t, os.Link(filepath.Join(root, "usr/bin/firstlightd"), filepath.Join(root, "usr/bin/second")))
	require.NoError(t, os.Symlink("usr/bin", filepath.Join(root, "bin")))
	return root
}

func TestTheArchiveIsComplete(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "images.tar"))
	require.NoError(t, err)
	defer file.Close()
	names, err := WriteArchive(file, makeRoot(t))
	require.NoError(t, err)
	assert.Len(t, names, len(repositories())+1)
	assert.NotContains(t, names, "firstlight.internal/etcd:1", "it is of a Kubernetes of the appliance's own")

	_, err = file.Seek(0, io.SeekStart)
	require.NoError(t, err)
	blobs := map[string][]byte{}
	for r := tar.NewReader(file); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		blobs[h.Name] = text
		if sum, isBlob := strings.CutPrefix(h.Name, "blobs/sha256/"); isBlob {
			assert.Equal(t, sum, fmt.Sprintf("%x", sha256.Sum256(text)))
		}
	}

	var index imagespec.Index
	require.NoError(t, json.Unmarshal(blobs["index.json"], &index))
	var manifest imagespec.Manifest
	var config imagespec.Image
	require.Equal(t, rootImage, index.Manifests[0].Annotations[containerdName])
	require.NoError(t, json.Unmarshal(blobs[blobName(index.Manifests[0].Digest)], &manifest))
	require.NoError(t, json.Unmarshal(blobs[blobName(manifest.Config.Digest)], &config))
	packed := blobs[blobName(manifest.Layers[0].Digest)]
	assert.EqualValues(t, len(packed), manifest.Layers[0].Size)
	plain, err := zstd.NewReader(bytes.NewReader(packed))
	require.NoError(t, err)
	defer plain.Close()
	layer, err := io.ReadAll(plain)
	require.NoError(t, err)
	assert.Equal(t, config.RootFS.DiffIDs[0].Encoded(), fmt.Sprintf("%x", sha256.Sum256(layer)))

	links := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(layer)); ; {
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

func TestARootOfAnotherVersionIsRefused(t *testing.T) {
	root := makeRoot(t)
	require.NoError(t, os.WriteFile(filepath.Join(root, layoutDir, "index.json"), []byte(`{"manifests":[]}`), 0o644))
	file, err := os.Create(filepath.Join(t.TempDir(), "images.tar"))
	require.NoError(t, err)
	defer file.Close()
	_, err = WriteArchive(file, root)
	assert.ErrorContains(t, err, "has no image")
}
