package kube

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// layout writes a bundle: the images' names, each with its layers.
func layout(t *testing.T, dir string, images map[string][]digest.Digest) {
	t.Helper()
	put := func(value any) imagespec.Descriptor {
		text, err := json.Marshal(value)
		require.NoError(t, err)
		d := imagespec.Descriptor{MediaType: "application/json", Digest: digest.FromBytes(text), Size: int64(len(text))}
		require.NoError(t, writeFile(blobPath(dir, d.Digest), text, 0o644))
		return d
	}
	var index imagespec.Index
	for name, layers := range images {
		config := imagespec.Image{Author: name, RootFS: imagespec.RootFS{Type: "layers", DiffIDs: layers}}
		m := imagespec.Manifest{Config: put(config)}
		for _, l := range layers {
			m.Layers = append(m.Layers, imagespec.Descriptor{Digest: l, Size: 1})
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "layers", l.Encoded(), "fs"), 0o755))
		}
		d := put(m)
		d.Annotations = map[string]string{imagespec.AnnotationRefName: "firstlight.internal/" + name}
		index.Manifests = append(index.Manifests, d)
	}
	slices.SortFunc(index.Manifests, func(a, b imagespec.Descriptor) int {
		return len(a.Annotations[imagespec.AnnotationRefName]) - len(b.Annotations[imagespec.AnnotationRefName])
	})
	text, err := json.Marshal(index)
	require.NoError(t, err)
	require.NoError(t, writeFile(filepath.Join(dir, "index.json"), text, 0o644))
}

var (
	lower = digest.FromString("lower")
	upper = digest.FromString("upper")
)

func TestBundleIsReadForContainerd(t *testing.T) {
	dir := t.TempDir()
	layout(t, dir, map[string][]digest.Digest{"etcd:v3": {lower}, "ironic:v29": {lower, upper}, "metrics-server:v0.9.0": {upper}})
	all, err := readImages(dir, "/unpacked")
	require.NoError(t, err)
	require.Len(t, all, 2, "what nodes run is not for containerd here")
	assert.Equal(t, "firstlight.internal/etcd:v3", all[0].name)
	assert.Equal(t, []snapshot{{lower.String(), "", "/unpacked/" + lower.Encoded() + "/fs"}}, all[0].snapshots)
	both := digest.FromString(lower.String() + " " + upper.String()).String()
	assert.Equal(t, []snapshot{all[0].snapshots[0], {both, lower.String(), "/unpacked/" + upper.Encoded() + "/fs"}}, all[1].snapshots)
	assert.Equal(t, both, all[1].chain())
	for _, i := range all {
		for _, b := range []blob{i.manifest, i.config} {
			assert.Equal(t, digest.FromBytes(b.data), b.Digest)
			assert.Equal(t, int64(len(b.data)), b.Size)
		}
		assert.Contains(t, string(i.manifest.data), `"layers":[]`, "no archive is looked for")
		assert.Contains(t, string(i.manifest.data), i.config.Digest.String())
	}
}

func TestBundleProblemsArePermanent(t *testing.T) {
	dir := t.TempDir()
	_, err := readImages(dir, "")
	assert.True(t, bringup.IsPermanent(err), "no bundle will come by waiting")
	for text, want := range map[string]string{
		`{"manifests":[{"digest":"sha256:aa"}]}`: "has no name",
		`{"manifests":[`:                         "read",
		`{"manifests":[{"digest":"sha256:../aa","annotations":{"org.opencontainers.image.ref.name":"a"}}]}`: "digest",
	} {
		require.NoError(t, os.WriteFile(dir+"/index.json", []byte(text), 0o644))
		_, err = readImages(dir, "")
		assert.ErrorContains(t, err, want)
		assert.True(t, bringup.IsPermanent(err), "rubbish stays rubbish: %s", text)
	}
	for _, gone := range []string{"layers/" + lower.Encoded() + "/fs", "blobs"} {
		layout(t, dir, map[string][]digest.Digest{"etcd:v3": {lower}})
		require.NoError(t, os.RemoveAll(filepath.Join(dir, gone)))
		_, err = readImages(dir, "")
		assert.ErrorContains(t, err, "read image firstlight.internal/etcd:v3")
		assert.True(t, bringup.IsPermanent(err), "%s is gone", gone)
	}
	require.NoError(t, os.Remove(dir+"/index.json"))
	require.NoError(t, os.Mkdir(dir+"/index.json", 0o755)) // its read fails, as that of a bad sector does
	_, err = readImages(dir, "")
	require.Error(t, err)
	assert.False(t, bringup.IsPermanent(err), "a read that failed once is believed for ever")
}

// wanted is an image with a manifest and layers of these digests.
func wanted(name, manifest string, layers ...string) image {
	i := image{name: name, manifest: blob{Descriptor: imagespec.Descriptor{Digest: digest.Digest(manifest)}}}
	for _, l := range layers {
		i.snapshots = append(i.snapshots, snapshot{chain: l, files: "/root/" + l})
	}
	return i
}

func TestMissingImages(t *testing.T) {
	have := state{
		images:    map[string]heldImage{"whole": {"m1", true}, "unnamed": {"m2", false}, "other": {"m0", true}, "unlinked": {"m4", true}, "unmade": {"m5", true}},
		snapshots: map[string]string{"a": "/store/1/fs", "b": "/store/2/fs"},
	}
	linked := func(at, files string) bool { return at == "/store/1/fs" && files == "/root/a" }
	want := []image{wanted("whole", "m1", "a"), wanted("unnamed", "m2", "a"), wanted("other", "m3", "a"),
		wanted("unlinked", "m4", "a", "b"), wanted("unmade", "m5", "c"), wanted("new", "m6", "a")}
	var names []string
	for _, i := range missingImages(want, have, linked) {
		names = append(names, i.name)
	}
	assert.Equal(t, []string{"unnamed", "other", "unlinked", "unmade", "new"}, names)
}

func TestImagesOfAnotherStickAreForgotten(t *testing.T) {
	want := []image{wanted("etcd:v3", "m1"), wanted("pause:v2", "m2")}
	have := map[string]heldImage{
		"etcd:v3": {"m0", true}, "sha256:c0": {"m0", false}, // another content under the name
		"pause:v1": {"m2", true}, "sha256:c2": {"m2", false}, // the content under another name
		"gone:v1": {"m3", true}, "sha256:c3": {"m3", false},
		"torn:v1": {"m4", false}, "owner/own:v1": {"m5", false}, "sha256:c5": {"m5", false},
	}
	assert.Equal(t, []string{"gone:v1", "pause:v1", "sha256:c0", "sha256:c3"}, foreignImages(want, have))
	assert.Empty(t, foreignImages(want, map[string]heldImage{"etcd:v3": {"m1", true}, "sha256:c1": {"m1", false}}))
}

func TestLinksReplaceWhatIsThere(t *testing.T) {
	c, _ := cluster(t)
	const at, files = containerdDir + "/snapshots/1/fs", "/usr/share/firstlight/images/layers/aa/fs"
	require.NoError(t, os.MkdirAll(c.path(files), 0o755))
	spoil := map[string]func() error{
		"nothing":          func() error { return os.Remove(c.path(at)) },
		"an empty folder":  func() error { return os.Mkdir(c.path(at), 0o755) },
		"unpacked files":   func() error { return os.MkdirAll(c.path(at)+"/usr/bin", 0o755) },
		"another stick's":  func() error { return os.Symlink("/usr/share/firstlight/images/layers/bb/fs", c.path(at)) },
		"a file, torn":     func() error { return os.WriteFile(c.path(at), nil, 0o644) },
		"the link already": func() error { return os.Symlink(files, c.path(at)) },
	}
	require.NoError(t, writeFile(c.path(at), nil, 0o644))
	for name, make := range spoil {
		_ = os.RemoveAll(c.path(at))
		if name == "nothing" {
			require.NoError(t, os.WriteFile(c.path(at), nil, 0o644))
		}
		require.NoError(t, make(), name)
		assert.Equal(t, name == "the link already", c.isLinked(at, files), name)
		require.NoError(t, c.link(at, files), name)
		assert.True(t, c.isLinked(at, files), name)
	}
	require.NoError(t, os.RemoveAll(c.path(files)))
	assert.False(t, c.isLinked(at, files), "it leads nowhere")
	for _, elsewhere := range []string{"", "/etc", "fs"} {
		assert.ErrorContains(t, c.link(elsewhere, files), "containerd says", elsewhere)
	}
}
