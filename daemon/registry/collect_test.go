package registry

import (
	"io/fs"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// blobs are how many blobs lie in the store on DATA, and their octets.
func (b *bed) blobs() (count int, octets int64) {
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
	b := newBed(t)
	s, host := b.serve()
	require.NoError(t, s.Collect(t.Context()), "nothing was ever pushed")
	writer, reader := remote.WithTransport(b.client(Writer)), remote.WithTransport(b.client(""))
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
	assert.False(t, p.ready(at(time.Hour), Quiet), "nothing was pushed or taken away")
	p.hold(http.MethodHead)()
	p.hold(http.MethodPatch)()
	assert.False(t, p.ready(at(time.Hour), Quiet))
	p.hold(http.MethodPut)()
	assert.False(t, p.ready(at(Quiet-time.Second), Quiet), "the next request of the push may come")
	assert.True(t, p.ready(at(Quiet+time.Second), Quiet))
	p.hold(http.MethodHead)()
	assert.False(t, p.ready(at(Quiet-time.Second), Quiet), "somebody asks what is there")

	done := p.hold(http.MethodPatch)
	assert.False(t, p.gate.TryLock(), "a layer is on its way")
	done()
	assert.True(t, p.gate.TryLock())
}

func TestACollectionWaitsForNobodyWhoPulls(t *testing.T) {
	b := newBed(t)
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
