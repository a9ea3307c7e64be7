package pack

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/bundle"
)

// shop are the images of the chart in testdata.
var shop = []string{"database", "order", "task", "wait", "web"}

// newImage makes an image of one layer.
func newImage(t *testing.T, architecture string) v1.Image {
	image, err := random.Image(1000, 1)
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	config.OS, config.Architecture = "linux", architecture
	image, err = mutate.ConfigFile(image, config)
	require.NoError(t, err)
	return image
}

// newRegistry serves a registry on the loopback with these images, and returns its address.
func newRegistry(t *testing.T, names ...string) string {
	server := httptest.NewServer(registry.New())
	t.Cleanup(server.Close)
	address := strings.TrimPrefix(server.URL, "http://")
	for _, n := range names {
		tag, err := name.NewTag(address + "/" + n)
		require.NoError(t, err)
		require.NoError(t, remote.Write(tag, newImage(t, "amd64")))
	}
	return address
}

func shopImages() (names []string) {
	for _, n := range shop {
		names = append(names, "shop/"+n+":1")
	}
	return names
}

// contents is an archive as its reader sees it.
type contents struct {
	t       *testing.T
	files   map[string][]byte
	index   imagespec.Index
	bundle  bundle.Bundle
	objects string
	bill    string
}

func readArchive(t *testing.T, archive []byte) contents {
	c := contents{t: t, files: map[string][]byte{}}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		c.files[h.Name], err = io.ReadAll(r)
		require.NoError(t, err)
	}

	require.NoError(t, json.Unmarshal(c.files["index.json"], &c.index))
	for _, d := range c.index.Manifests {
		if d.ArtifactType != bundle.ArtifactType {
			continue
		}
		var m imagespec.Manifest
		require.NoError(t, json.Unmarshal(c.blob(d), &m))
		require.NoError(t, json.Unmarshal(c.blob(m.Config), &c.bundle))
		c.objects, c.bill = string(c.blob(m.Layers[0])), string(c.blob(m.Layers[1]))
	}
	return c
}

func (c contents) blob(d imagespec.Descriptor) []byte {
	text, is := c.files["blobs/sha256/"+d.Digest.Encoded()]
	require.True(c.t, is, d.Digest)
	return text
}

func packed(t *testing.T, o Options) contents {
	var out bytes.Buffer
	_, err := Pack(t.Context(), o, &out)
	require.NoError(t, err)
	return readArchive(t, out.Bytes())
}

func TestAChartWithFiveImages(t *testing.T) {
	address := newRegistry(t, shopImages()...)
	o := Options{Source: "testdata/shop", Namespace: "store", Values: []string{"registry=" + address}}
	var first, second bytes.Buffer
	_, err := Pack(t.Context(), o, &first)
	require.NoError(t, err)
	_, err = Pack(t.Context(), o, &second)
	require.NoError(t, err)
	assert.Equal(t, first.Bytes(), second.Bytes(), "equal inputs give equal bytes")

	c := readArchive(t, first.Bytes())
	assert.Equal(t, "shop 1.0.0", c.bundle.Title())
	assert.Equal(t, "store", c.bundle.Namespace)
	require.Len(t, c.bundle.Images, 5)
	for i, image := range c.bundle.Images {
		assert.Equal(t, address+"/shop/"+shop[i]+":1", image.Asked)
		assert.Regexp(t, `^127\.0\.0\.1-\d+\.firstlight\.internal/shop/\w+:1@sha256:[0-9a-f]{64}$`, image.Name)
		assert.Contains(t, c.objects, "image: "+image.Name+"\n")
		assert.Contains(t, c.bill, image.Digest)

		var m imagespec.Manifest
		d := c.index.Manifests[i]
		assert.Equal(t, image.Tag, d.Annotations["io.containerd.image.name"])
		require.NoError(t, json.Unmarshal(c.blob(d), &m))
		c.blob(m.Config)
		c.blob(m.Layers[0])
	}

	for _, line := range []string{`mode: "0644"`, "helm.sh/resource-policy: keep", "helm.sh/hook: pre-delete", "release: shop-1.0.0"} {
		assert.Contains(t, c.objects, line)
	}
	for _, word := range []string{"no-such-image", "Open the shop", address + "/"} {
		assert.NotContains(t, c.objects, word)
	}
	assert.Contains(t, c.bill, `"spdxVersion": "SPDX-2.3"`)
}

func TestWhatCannotBeHadIsNamedWithItsLine(t *testing.T) {
	address := newRegistry(t, "shop/database:1", "shop/task:1", "shop/wait:1")
	tag, err := name.NewTag(address + "/shop/order:1")
	require.NoError(t, err)
	require.NoError(t, remote.Write(tag, newImage(t, "arm64")))
	_, err = Pack(t.Context(), Options{Source: "testdata/shop", Values: []string{"registry=" + address}}, io.Discard)
	require.Error(t, err)
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, 2, "%v", err)
	assert.Contains(t, lines[0], "testdata/shop/templates/web.yaml:17: image "+address+"/shop/web:1: it is in none of the archives")
	assert.Contains(t, lines[1], "testdata/shop/templates/web.yaml:24: image "+address+"/shop/order:1: it is for linux/arm64")
}

func TestAChartThatMakesUpAPassword(t *testing.T) {
	o := Options{Source: "testdata/shop", Values: []string{"password=yes"}}
	_, err := Pack(t.Context(), o, io.Discard)
	assert.ErrorContains(t, err, "testdata/shop/templates/config.yaml gives something else each time")
}

func TestManifestsWithImagesOfArchives(t *testing.T) {
	dir := t.TempDir()
	docker, oci := filepath.Join(dir, "docker.tar"), filepath.Join(dir, "oci.tar")
	tag, err := name.NewTag("registry.example/shop/web:1")
	require.NoError(t, err)
	require.NoError(t, tarball.WriteToFile(docker, tag, newImage(t, "amd64")))

	address := newRegistry(t, shopImages()...)
	var chart bytes.Buffer
	_, err = Pack(t.Context(), Options{Source: "testdata/shop", Values: []string{"registry=" + address}}, &chart)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(oci, chart.Bytes(), 0o644))
	before := readArchive(t, chart.Bytes()).bundle.Images[0]

	manifests := filepath.Join(dir, "manifests")
	require.NoError(t, os.Mkdir(manifests, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(manifests, "pods.yaml"), []byte(`# two of them
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: web, image: "registry.example/shop/web:1", args: [yes, 0644]}
  - {name: base, image: registry.example/base:2}
---
apiVersion: v1
kind: Pod
metadata: {name: database}
spec:
  containers: [{name: database, image: `+before.Name+`}]
`), 0o644))

	o := Options{Source: manifests, Name: "pods", Version: "2", Archives: []string{docker, oci}, Absent: []string{"registry.example/base:2"}}
	c := packed(t, o)
	require.Len(t, c.bundle.Images, 3)
	base, database, web := c.bundle.Images[1], c.bundle.Images[0], c.bundle.Images[2]
	assert.Equal(t, bundle.Image{Asked: base.Asked, Name: "registry.example/base:2", Absent: true}, base)
	assert.Equal(t, before.Digest, database.Digest)
	assert.Contains(t, c.objects, `image: "registry.example/shop/web:1@`+web.Digest+`"`)
	assert.Contains(t, c.objects, "args: [yes, 0644]", "what is no image stays as it is written")
	assert.Equal(t, "pods", c.bundle.Namespace)

	o.Absent = append(o.Absent, "registry.example/never:1")
	_, err = Pack(t.Context(), o, io.Discard)
	assert.ErrorContains(t, err, "--absent registry.example/never:1: no object names it")
}

func TestAKustomization(t *testing.T) {
	docker := filepath.Join(t.TempDir(), "docker.tar")
	tag, err := name.NewTag("registry.example/shop/web:1")
	require.NoError(t, err)
	require.NoError(t, tarball.WriteToFile(docker, tag, newImage(t, "amd64")))
	o := Options{Source: "testdata/kustomized", Name: "lab", Version: "1", Archives: []string{docker}}
	c := packed(t, o)
	assert.Contains(t, c.objects, "name: lab-web")
	assert.Contains(t, c.objects, "registry.example/shop/web:1@sha256:")

	o.Images = []string{"registry.example/shop/web:1"}
	c = packed(t, o)
	require.Len(t, c.bundle.Images, 2)
	assert.Equal(t, "registry.example/shop/web:1", c.index.Manifests[0].Annotations["io.containerd.image.name"])

	for _, wrong := range []Options{
		{Source: "testdata/kustomized", Version: "1"},
		{Source: "testdata/kustomized", Name: "lab", Version: "1", Values: []string{"a=b"}},
		{Source: "testdata/nothing", Name: "lab", Version: "1"},
		{Source: t.TempDir(), Name: "lab", Version: "1"},
		{Source: "testdata/kustomized", Name: "Lab", Version: "1"},
	} {
		_, err := Pack(t.Context(), wrong, io.Discard)
		assert.Error(t, err, "%+v", wrong)
	}
}
