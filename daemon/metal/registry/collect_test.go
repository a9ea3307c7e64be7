package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/containers"
)

// blobs are how many blobs lie in the store on DATA, and their octets.
func (b *fixture) blobs() (count int, octets int64) {
	err := filepath.WalkDir(filepath.Join(b.config.Store, "docker/registry/v2/blobs"), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		count, octets = count+1, octets+info.Size()
		return err
	})
	require.NoError(b.t, err)
	return count, octets
}

func TestWhatNoNameLeadsToIsRemoved(t *testing.T) {
	b := newFixture(t)
	s, host := b.serve()
	require.NoError(t, s.Collect(t.Context()), "nothing was ever pushed")
	writer := remote.WithTransport(b.client(Writer))
	reader := writer // which sees everybody's
	push := func(layers int64) (kept, gone func(string)) {
		image, err := random.Image(5000, layers)
		require.NoError(t, err)
		return func(name string) { require.NoError(t, remote.Write(reference(t, host+name), image, writer)) },
			func(name string) {
				require.NoError(t, remote.Delete(reference(t, host+name), writer))
				_, err := remote.Image(reference(t, host+name), reader)
				require.Error(t, err)
			}
	}
	first, withdraw := push(3)
	first("/docker.io/library/app:1")
	count, _ := b.blobs()
	assert.Equal(t, 5, count, "three layers, a configuration and a manifest")

	// The same name for another image, an image with one layer of the first, the stick's image under
	// another name, and layers of a push that was cut off.
	second, _ := push(1)
	second("/docker.io/library/app:1")
	lone, err := random.Layer(7000, "application/vnd.oci.image.layer.v1.tar")
	require.NoError(t, err)
	require.NoError(t, remote.WriteLayer(reference(t, host+"/docker.io/library/cut").Context(), lone, writer))
	more, err := mutate.AppendLayers(b.stick, lone)
	require.NoError(t, err)
	require.NoError(t, remote.Write(reference(t, host+"/docker.io/library/more:1"), more, writer))
	require.NoError(t, remote.Write(reference(t, host+"/docker.io/library/stick:1"), b.stick, writer))
	first("/docker.io/library/gone:1")
	withdraw("/docker.io/library/gone:1")
	count, _ = b.blobs()
	assert.Equal(t, 5+3+3, count)

	require.NoError(t, s.Collect(t.Context()))
	count, octets := b.blobs()
	assert.Equal(t, 3+3, count, "the second image, and of the one made from the stick's its layer, configuration and manifest")
	assert.Less(t, octets, int64(16000))
	for _, name := range []string{"/pause:3.10.2", "/docker.io/library/app:1", "/docker.io/library/more:1", "/docker.io/library/stick:1"} {
		image, err := remote.Image(reference(t, host+name), reader)
		require.NoError(t, err, name)
		layers, err := image.Layers()
		require.NoError(t, err)
		for _, l := range layers {
			digest, err := l.Digest()
			require.NoError(t, err)
			_, err = remote.Layer(reference(t, host+name).Context().Digest(digest.String()), reader)
			require.NoError(t, err, name)
		}
	}
	require.NoError(t, s.Collect(t.Context()), "again")

	// What is gone can be pushed again, and what is the stick's outlives the removal of its other name.
	first("/docker.io/library/app:1")
	require.NoError(t, remote.Delete(reference(t, host+"/docker.io/library/stick:1"), writer))
	require.NoError(t, s.Collect(t.Context()))
	_, err = remote.Image(reference(t, host+"/pause:3.10.2"), reader)
	require.NoError(t, err)
	count, _ = b.blobs()
	assert.Equal(t, 5+3, count)
}

func TestNothingIsRemovedUnderAPush(t *testing.T) {
	var p pushes
	at := func(d time.Duration) time.Time { return time.Now().Add(d) }
	assert.False(t, p.canCollect(at(time.Hour), Quiet), "nothing was pushed or taken away")
	p.enter(http.MethodHead)()
	p.enter(http.MethodPatch)()
	assert.False(t, p.canCollect(at(time.Hour), Quiet))
	p.enter(http.MethodPut)()
	assert.False(t, p.canCollect(at(Quiet-time.Second), Quiet), "the next request of the push may come")
	assert.True(t, p.canCollect(at(Quiet+time.Second), Quiet))
	p.enter(http.MethodHead)()
	assert.False(t, p.canCollect(at(Quiet-time.Second), Quiet), "somebody asks what is there")

	done := p.enter(http.MethodPatch)
	assert.False(t, p.gate.TryLock(), "a layer is on its way")
	done()
	assert.True(t, p.gate.TryLock())
}

// The agent looks twice a minute whether what it serves is still there. That is no push.
func TestTheAgentsLookingKeepsNobodyAway(t *testing.T) {
	b := newFixture(t)
	s, host := b.serve()
	dir := t.TempDir()
	var records []artifact.Metadata
	for i, tag := range []string{"kept:1", "gone:1"} {
		image, err := random.Image(3000, 2)
		require.NoError(t, err)
		of, err := name.NewTag("registry.example/" + tag)
		require.NoError(t, err)
		file := strconv.Itoa(i)
		require.NoError(t, tarball.WriteToFile(filepath.Join(dir, file), of, image))
		records = append(records, artifact.Metadata{Owner: "alpha", ClusterName: "beta", ImageName: file, Complete: true, SHA256: file})
	}
	p := containers.Pusher{Registry: host, Transport: b.client(Writer), State: filepath.Join(dir, "pushed.json"),
		File:   func(k artifact.Key) string { return filepath.Join(dir, k.Name) },
		Report: func(context.Context, artifact.Key, string, []string, string) error { return nil }}
	require.NoError(t, p.Sync(t.Context(), records))
	require.NoError(t, p.Sync(t.Context(), records[:1]), "one is withdrawn")
	before, _ := b.blobs()
	last := s.pushes.last
	for range 3 {
		require.NoError(t, p.Sync(t.Context(), records[:1]))
	}
	assert.Equal(t, last, s.pushes.last, "a Sync that has nothing to do is a push")
	require.True(t, s.pushes.canCollect(last.Add(Quiet), Quiet))
	require.NoError(t, s.Collect(t.Context()))
	after, _ := b.blobs()
	assert.Equal(t, before-4, after, "two layers, a configuration and a manifest are gone")
	require.NoError(t, p.Sync(t.Context(), records[:1]))
	_, err := remote.Image(reference(t, host+"/owners/alpha/registry.example/kept:1"), remote.WithTransport(b.client(Writer)))
	require.NoError(t, err)
}

func TestWhatAPushReliesOn(t *testing.T) {
	certificate := &x509.Certificate{Subject: pkix.Name{CommonName: Writer}}
	for _, c := range []struct {
		method, path string
		writes       bool
	}{
		{"HEAD", "/v2/app/blobs/sha256:00", true},
		{"GET", "/v2/app/blobs/uploads/4a", true},
		{"HEAD", "/v2/app/manifests/sha256:00", true},
		{"GET", "/v2/blobs/uploads/manifests/sha256:00", true},
		{"PUT", "/v2/app/manifests/1", true},
		{"PATCH", "/v2/app/blobs/uploads/4a", true},
		{"DELETE", "/v2/app/manifests/1", true},
		{"HEAD", "/v2/app/manifests/1", false},
		{"HEAD", "/v2/blobs/uploads/manifests/1", false},
		{"GET", "/v2/app/tags/list", false},
		{"GET", "/v2/", false},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		assert.False(t, isPush(r), "nobody: %s %s", c.method, c.path)
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{certificate}}}
		assert.Equal(t, c.writes, isPush(r), "%s %s", c.method, c.path)
	}
}

func TestACollectionWaitsForNobodyWhoPulls(t *testing.T) {
	b := newFixture(t)
	s, host := b.serve()
	s.pushes.gate.Lock() // as Collect has it
	_, err := remote.Image(reference(t, host+"/pause:3.10.2"), remote.WithTransport(b.client("")))
	require.NoError(t, err)
	pushed := make(chan error)
	go func() {
		pushed <- remote.Write(reference(t, host+"/docker.io/library/late:1"), b.stick, remote.WithTransport(b.client(Writer)))
	}()
	select {
	case err := <-pushed:
		t.Fatalf("pushed while the store is sorted through: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	s.pushes.gate.Unlock()
	require.NoError(t, <-pushed)
}
