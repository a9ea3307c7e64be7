package containers

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/bundle"
	"firstlight.dev/firstlight/image/pack"
)

// pods packs a pod of two images, of which another archive brings the second, and writes the archive.
func (b *fixture) pods(file, version, command string, web v1.Image) bundle.Bundle {
	b.t.Helper()
	dir := b.t.TempDir()
	tag, err := name.NewTag("registry.example/web:1")
	require.NoError(b.t, err)
	config, err := web.ConfigFile()
	require.NoError(b.t, err)
	config.OS, config.Architecture = "linux", "amd64"
	web, err = mutate.ConfigFile(web, config)
	require.NoError(b.t, err)
	images := filepath.Join(dir, "images.tar")
	require.NoError(b.t, tarball.WriteToFile(images, tag, web))
	manifest := filepath.Join(dir, "pod.yaml")
	require.NoError(b.t, os.WriteFile(manifest, []byte(`apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: web, image: "registry.example/web:1", command: [`+command+`]}
  - {name: base, image: "registry.example/base:2"}
`), 0o644))

	var out bytes.Buffer
	packed, err := pack.Pack(b.t.Context(), pack.Options{
		Source:   manifest,
		Name:     "pods",
		Version:  version,
		Archives: []string{images},
		Absent:   []string{"registry.example/base:2"},
	}, &out)
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(b.dir, file), out.Bytes(), 0o644))
	return packed
}

// published is a bundle as the operator of components finds it; its objects are "" if there is none.
func (b *fixture) published(dir string) (d bundle.Bundle, objects string) {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.pusher.Bundles, dir, bundle.DescriptionFile))
	if errors.Is(err, os.ErrNotExist) {
		return d, ""
	}
	require.NoError(b.t, err)
	require.NoError(b.t, json.Unmarshal(text, &d))
	all, err := os.ReadDir(filepath.Join(b.pusher.Bundles, dir))
	require.NoError(b.t, err)
	assert.Len(b.t, all, 2)
	text, err = os.ReadFile(filepath.Join(b.pusher.Bundles, dir, d.ObjectsFile()))
	require.NoError(b.t, err)
	return d, string(text)
}

func TestABundleIsPublished(t *testing.T) {
	b := newFixture(t)
	b.pusher.Bundles = filepath.Join(t.TempDir(), "bundles")
	web := image(t)
	packed := b.pods("pods", "1", "one", web)
	records := []artifact.Metadata{b.record("pods", "1", 0)}
	require.NoError(t, b.pusher.Sync(t.Context(), records))

	found, objects := b.published("alpha/pods/1")
	var own bundle.Image
	for _, i := range packed.Images {
		if !i.Absent {
			own = i
		}
	}
	assert.Contains(t, objects, own.Name)
	assert.Equal(t, packed.Images, found.Images)
	assert.Equal(t, []string{"registry.example/base:2"}, found.Missing)
	assert.Empty(t, found.NotServed)
	assert.Equal(t, own.Digest, b.has(own.Tag), "nodes pull it by its digest")
	assert.Equal(t, []string{own.Tag}, b.told["pods"].ServedAs)

	// The other archive comes, and goes.
	b.docker("base", map[string]v1.Image{"registry.example/base:2": image(t)})
	records = []artifact.Metadata{b.record("pods", "1", 0), b.record("base", "1", 1)}
	require.NoError(t, b.pusher.Sync(t.Context(), records))
	found, _ = b.published("alpha/pods/1")
	assert.Empty(t, found.Missing)
	records = records[:1]
	require.NoError(t, b.pusher.Sync(t.Context(), records))
	found, _ = b.published("alpha/pods/1")
	assert.Equal(t, []string{"registry.example/base:2"}, found.Missing)

	// Nothing is taken away while the registry does not answer, also of an agent that knows nothing yet.
	b.broken, b.pusher.memory = true, nil
	assert.Error(t, b.pusher.Sync(t.Context(), records))
	_, objects = b.published("alpha/pods/1")
	assert.NotEmpty(t, objects)
	b.broken = false

	// Another bundle of that name is refused, also of another archive; the next version is not.
	b.pods("again", "1", "two", web)
	b.pods("next", "2", "two", web)
	records = append(records, b.record("again", "2", 2), b.record("next", "3", 3))
	require.NoError(t, b.pusher.Sync(t.Context(), records))
	assert.Contains(t, b.told["again"].NotServed, "bundle pods 1 is that of pods, which you uploaded before")
	_, objects = b.published("alpha/pods/1")
	assert.Contains(t, objects, "command: [one]")
	_, objects = b.published("alpha/pods/2")
	assert.Contains(t, objects, "command: [two]")

	// An archive of the same name with other content takes its place; one that is removed takes its bundle along.
	b.pods("pods", "1", "three", web)
	require.NoError(t, b.pusher.Sync(t.Context(), []artifact.Metadata{b.record("pods", "9", 0)}))
	_, objects = b.published("alpha/pods/1")
	assert.Contains(t, objects, "command: [three]")
	require.NoError(t, b.pusher.Sync(t.Context(), nil))
	left, err := os.ReadDir(b.pusher.Bundles)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// What a recipe has put on the stick is there before anything that is uploaded.
func TestABundleOfTheStick(t *testing.T) {
	b := newFixture(t)
	b.pusher.Bundles, b.pusher.Stick = filepath.Join(t.TempDir(), "bundles"), t.TempDir()
	var log bytes.Buffer
	b.pusher.Log = slog.New(slog.NewTextHandler(&log, nil))
	require.NoError(t, os.Mkdir(filepath.Join(b.pusher.Stick, "alpha"), 0o755))
	b.dir = filepath.Join(b.pusher.Stick, "alpha")
	packed := b.pods("pods.tar", "1", "one", image(t))
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "wrong.tar"), emptyIndex(t), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "noise"), bytes.Repeat([]byte("noise"), 1000), 0o644))
	b.dir = t.TempDir()
	b.pusher.File = func(k artifact.Key) string { return filepath.Join(b.dir, k.Name) }
	b.pods("mine", "1", "two", image(t))

	require.NoError(t, b.pusher.Sync(t.Context(), []artifact.Metadata{b.record("mine", "1", 0)}))
	found, objects := b.published("alpha/pods/1")
	assert.Equal(t, packed.Images, found.Images)
	assert.Contains(t, objects, "command: [one]")
	for _, i := range packed.Images {
		if !i.Absent {
			assert.Equal(t, i.Digest, b.has(i.Tag))
		}
	}
	assert.Contains(t, b.told["mine"].NotServed, "bundle pods 1 is that of pods.tar")
	assert.NotContains(t, b.told, "pods.tar", "it has no record")
	assert.Contains(t, log.String(), "alpha/wrong.tar why=\"the archive names no image")
	assert.Contains(t, log.String(), "alpha/noise why=\"it is no tar archive")
	said := log.String()
	require.NoError(t, b.pusher.Sync(t.Context(), nil))
	assert.Equal(t, said, log.String(), "it is said once")
}

// emptyIndex is an OCI archive without images.
func emptyIndex(t *testing.T) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	text := []byte(`{"schemaVersion":2,"manifests":[]}`)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "index.json", Mode: 0o644, Size: int64(len(text))}))
	_, err := w.Write(text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

// Whoever may upload may send any archive.
func TestABundleThatDoesNotFitTogether(t *testing.T) {
	b := newFixture(t)
	b.pusher.Bundles = filepath.Join(t.TempDir(), "bundles")
	b.pods("pods", "1", "one", image(t))
	whole, err := os.ReadFile(filepath.Join(b.dir, "pods"))
	require.NoError(t, err)

	for why, edit := range map[string]func(name string, text []byte) []byte{
		"has the content of": func(_ string, text []byte) []byte { return bytes.ReplaceAll(text, []byte("[one]"), []byte("[two]")) },
		"has the content of sha256:": func(_ string, text []byte) []byte {
			return bytes.ReplaceAll(text, []byte(`"name":"pods"`), []byte(`"name":"../x"`))
		},
		"it says that it has image": func(name string, text []byte) []byte {
			if name != "index.json" {
				return text
			}
			return bytes.ReplaceAll(text, []byte("registry.example/web:sha256-"), []byte("registry.example/web:sha256_"))
		},
		"has two bundles": func(name string, text []byte) []byte {
			if name != "index.json" {
				return text
			}
			var index v1.IndexManifest
			require.NoError(t, json.Unmarshal(text, &index))
			index.Manifests = append(index.Manifests, index.Manifests[len(index.Manifests)-1])
			text, err := json.Marshal(index)
			require.NoError(t, err)
			return text
		},
	} {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for r := tar.NewReader(bytes.NewReader(whole)); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			text, err := io.ReadAll(r)
			require.NoError(t, err)
			text = edit(h.Name, text)
			h.Size = int64(len(text))
			require.NoError(t, w.WriteHeader(h))
			_, err = w.Write(text)
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
		require.NoError(t, os.WriteFile(filepath.Join(b.dir, "edited"), out.Bytes(), 0o644))
		b.pusher.memory = nil
		require.NoError(t, b.pusher.Sync(t.Context(), []artifact.Metadata{b.record("edited", "1", 0)}))
		assert.Contains(t, b.told["edited"].NotServed, strings.TrimPrefix(why, "it "))
		_, objects := b.published("alpha/pods/1")
		assert.Empty(t, objects)
	}
}
