package containers

import (
	"archive/tar"
	"context"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
)

// fixture is a registry and a folder of archives.
type fixture struct {
	t      *testing.T
	dir    string
	host   string
	puts   int // writes of the registry
	reads  int // times that an archive was opened
	broken bool
	full   bool // the registry takes no layer
	now    time.Time
	pusher *Pusher
	told   map[string]artifact.Metadata // by name
}

func newFixture(t *testing.T) *fixture {
	b := &fixture{t: t, dir: t.TempDir(), now: created, told: map[string]artifact.Metadata{}}
	real := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case b.broken:
			http.Error(w, "down", http.StatusInsufficientStorage) // which the client does not try again
			return
		case b.full && r.Method == http.MethodPatch:
			http.Error(w, "no room", http.StatusInsufficientStorage)
			return
		case r.Method != http.MethodGet && r.Method != http.MethodHead && strings.HasPrefix(r.URL.Path, "/v2/owners/alpha/firstlight.internal/pause/"):
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"errors":[{"code":"DENIED","message":"image pause is the stick's own"}]}`)
			return
		case r.Method == http.MethodPut || r.Method == http.MethodPost || r.Method == http.MethodDelete:
			b.puts++
		}
		real.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	b.host = strings.TrimPrefix(server.URL, "http://")
	b.pusher = &Pusher{Registry: b.host, Transport: http.DefaultTransport, State: filepath.Join(b.dir, "pushed.json"),
		File: func(k artifact.Key) string { b.reads++; return filepath.Join(b.dir, k.Name) },
		Now:  func() time.Time { return b.now },
		Report: func(_ context.Context, k artifact.Key, sha256 string, names []string, why string) error {
			b.told[k.Name] = artifact.Metadata{SHA256: sha256, ServedAs: names, NotServed: why}
			return nil
		}}
	return b
}

var created = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// record describes an archive; what was told of it is in it, as the store keeps it.
func (b *fixture) record(name, sha256 string, age time.Duration) artifact.Metadata {
	r := artifact.Metadata{Owner: "alpha", ClusterName: "beta", ImageName: name, Complete: true, SHA256: sha256, Created: created.Add(age)}
	if told := b.told[name]; told.SHA256 == sha256 {
		r.ServedAs, r.NotServed = told.ServedAs, told.NotServed
	}
	return r
}

func (b *fixture) docker(file string, images map[string]v1.Image) {
	b.t.Helper()
	all := map[name.Tag]v1.Image{}
	for text, image := range images {
		tag, err := name.NewTag(text)
		require.NoError(b.t, err)
		all[tag] = image
	}
	require.NoError(b.t, tarball.MultiWriteToFile(filepath.Join(b.dir, file), all))
}

// oci writes an OCI layout as a tar.
func (b *fixture) oci(file string, index v1.ImageIndex) {
	b.t.Helper()
	dir := b.t.TempDir()
	_, err := layout.Write(dir, index)
	require.NoError(b.t, err)
	f, err := os.Create(filepath.Join(b.dir, file))
	require.NoError(b.t, err)
	defer f.Close()
	t := tar.NewWriter(f)
	require.NoError(b.t, t.AddFS(os.DirFS(dir)))
	require.NoError(b.t, t.Close())
}

func image(t *testing.T) v1.Image {
	i, err := random.Image(3000, 2)
	require.NoError(t, err)
	return i
}

// has is the digest of an image in the registry, "" if it is not there.
func (b *fixture) has(ref string) string {
	b.t.Helper()
	tag, err := name.NewTag(b.host + "/owners/alpha/" + ref)
	require.NoError(b.t, err)
	i, err := remote.Image(tag)
	if err != nil {
		return ""
	}
	layers, err := i.Layers()
	require.NoError(b.t, err)
	for _, l := range layers { // all of it can be pulled
		r, err := l.Compressed()
		require.NoError(b.t, err)
		_, err = io.Copy(io.Discard, r)
		require.NoError(b.t, err)
	}
	return digest(b.t, i)
}

func digest(t *testing.T, i v1.Image) string {
	d, err := i.Digest()
	require.NoError(t, err)
	return d.String()
}

func TestImagesAreServedUnderTheirNames(t *testing.T) {
	b := newFixture(t)
	web, db := image(t), image(t)
	b.docker("both", map[string]v1.Image{"registry.example/web/front:1": web, "registry.example/db:2": db})
	other := image(t)
	platforms := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: image(t), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	b.oci("layout", mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: platforms,
		Descriptor: v1.Descriptor{Annotations: map[string]string{"org.opencontainers.image.ref.name": "registry.example/many:3"}}}))
	records := func() []artifact.Metadata {
		return []artifact.Metadata{b.record("both", "1", 0), b.record("layout", "2", 1), {ImageName: "unread", Complete: true}}
	}
	require.NoError(t, b.pusher.Sync(t.Context(), records()))
	assert.NotEmpty(t, b.has("registry.example/web/front:1"))
	assert.NotEmpty(t, b.has("registry.example/db:2"))
	assert.Equal(t, digest(t, other), b.has("registry.example/many:3"), "the image for our nodes' platform")
	assert.ElementsMatch(t, []string{"registry.example/db:2", "registry.example/web/front:1"}, b.told["both"].ServedAs)
	assert.Equal(t, []string{"registry.example/many:3"}, b.told["layout"].ServedAs)

	puts := b.puts
	require.NoError(t, b.pusher.Sync(t.Context(), records()))
	assert.Equal(t, puts, b.puts, "nothing changed, nothing was pushed")

	// The registry lost one.
	tag, err := name.NewTag(b.host + "/owners/alpha/registry.example/many:3")
	require.NoError(t, err)
	require.NoError(t, remote.Delete(tag))
	require.NoError(t, b.pusher.Sync(t.Context(), records()))
	assert.Equal(t, digest(t, other), b.has("registry.example/many:3"), "it is pushed again")

	// Another archive under the same artifact, and one that was removed.
	b.docker("both", map[string]v1.Image{"registry.example/web/front:1": other})
	require.NoError(t, b.pusher.Sync(t.Context(), []artifact.Metadata{b.record("both", "9", 0)}))
	assert.Equal(t, []string{"registry.example/web/front:1"}, b.told["both"].ServedAs)
	assert.NotEmpty(t, b.has("registry.example/web/front:1"))
	assert.Empty(t, b.has("registry.example/db:2"))
	assert.Empty(t, b.has("registry.example/many:3"))
	require.NoError(t, b.pusher.Sync(t.Context(), nil))
	assert.Empty(t, b.has("registry.example/web/front:1"))
}

func TestARegistryThatIsAwayTakesNothingAway(t *testing.T) {
	b := newFixture(t)
	b.docker("web", map[string]v1.Image{"registry.example/web:1": image(t)})
	require.NoError(t, b.pusher.Sync(t.Context(), []artifact.Metadata{b.record("web", "1", 0)}))
	told := b.told["web"]
	b.broken = true
	assert.Error(t, b.pusher.Sync(t.Context(), []artifact.Metadata{b.record("web", "1", 0)}))
	assert.Equal(t, told, b.told["web"])
	b.broken = false
	assert.NotEmpty(t, b.has("registry.example/web:1"))
	require.NoError(t, b.pusher.Sync(t.Context(), []artifact.Metadata{b.record("web", "1", 0)}))
}

func TestWhatIsNotServedSaysWhy(t *testing.T) {
	b := newFixture(t)
	b.docker("first", map[string]v1.Image{"registry.example/web:1": image(t)})
	b.docker("second", map[string]v1.Image{"registry.example/web:1": image(t)})
	b.docker("port", map[string]v1.Image{"registry.example:5000/web:1": image(t)})
	b.docker("stick", map[string]v1.Image{"firstlight.internal/pause:1": image(t)})
	b.oci("nameless", mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image(t),
		Descriptor: v1.Descriptor{Annotations: map[string]string{"org.opencontainers.image.ref.name": "latest"}}}))
	arm := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image(t), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}})
	b.oci("foreign", mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: arm,
		Descriptor: v1.Descriptor{Annotations: map[string]string{"io.containerd.image.name": "registry.example/arm:1"}}}))
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "noise"), []byte(strings.Repeat("noise", 1000)), 0o644))
	f, err := os.Create(filepath.Join(b.dir, "files"))
	require.NoError(t, err)
	w := tar.NewWriter(f)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "hello", Mode: 0o644, Size: 2, Typeflag: tar.TypeReg}))
	_, err = w.Write([]byte("hi"))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, f.Close())

	var records []artifact.Metadata
	for i, name := range []string{"first", "second", "port", "stick", "nameless", "foreign", "noise", "files"} {
		records = append(records, b.record(name, "1", time.Duration(i)))
	}
	require.NoError(t, b.pusher.Sync(t.Context(), records))
	assert.Equal(t, []string{"registry.example/web:1"}, b.told["first"].ServedAs)
	for name, why := range map[string]string{
		"second":   "registry.example/web:1 is the name of another image that you uploaded before",
		"port":     "names a registry with a port, which cannot be served",
		"stick":    "image pause is the stick's own",
		"nameless": "the archive names no image; write it with",
		"foreign":  "it has none for linux/amd64",
		"noise":    "it is no tar archive, or a compressed one",
		"files":    "it is a tar archive without manifest.json and index.json",
	} {
		assert.Contains(t, b.told[name].NotServed, why, name)
		assert.Empty(t, b.told[name].ServedAs, name)
	}
	_, err = os.Stat(b.pusher.State)
	assert.NotErrorIs(t, err, fs.ErrNotExist)
}

func FuzzArchive(f *testing.F) {
	i, err := random.Image(100, 1)
	require.NoError(f, err)
	file := filepath.Join(f.TempDir(), "a.tar")
	tag, err := name.NewTag("registry.example/a:1")
	require.NoError(f, err)
	require.NoError(f, tarball.WriteToFile(file, tag, i))
	text, err := os.ReadFile(file)
	require.NoError(f, err)
	f.Add(text)
	f.Add(text[:len(text)/2])
	f.Fuzz(func(t *testing.T, data []byte) {
		file := filepath.Join(t.TempDir(), "a.tar")
		require.NoError(t, os.WriteFile(file, data, 0o644))
		all, err := open(t.Context(), file)
		if err != nil {
			return
		}
		for _, n := range all.images {
			assert.NotEmpty(t, n.names)
			if i, err := n.image(); err == nil {
				_, _ = i.Digest()
			}
		}
	})
}
