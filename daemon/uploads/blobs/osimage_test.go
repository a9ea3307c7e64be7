package blobs_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
	"firstlight.dev/firstlight/daemon/uploads/publish"
)

// rawDisk is what can be installed.
func rawDisk(n int) []byte {
	b := image(n)
	b[510], b[511] = 0x55, 0xaa
	return b
}

func osKey(name string) artifact.Key {
	return artifact.Key{Collection: artifact.OS, Owner: "alpha", Cluster: "beta", Name: name}
}

// An OS image is offered to nodes whatever became of its record.
func TestOSImageWhoseRecordIsLostIsOfferedAgain(t *testing.T) {
	backends(t, func(t *testing.T, s blobs.Backend) {
		for _, announced := range []string{"", digest(rawDisk(6 << 20))} {
			b := newFixture(t, s, nil)
			k, content := osKey("disk"), rawDisk(6<<20)
			r := record(k, len(content))
			r.SHA256 = announced
			_, err := b.Create(t.Context(), k, r)
			require.NoError(t, err)
			_, err = b.Append(t.Context(), k, 0, -1, octets(content))
			require.NoError(t, err)
			before := publish.OSImages(b.Complete(artifact.OS))
			require.Len(t, before, 1)
			require.NoError(t, b.config.Backend.Remove(t.Context(), k.Collection.Bucket(), ".firstlight/records/"+k.Object()))
			b.open()
			if announced != "" {
				assert.Equal(t, before, publish.OSImages(b.Complete(artifact.OS)), "the object's metadata says all of it")
			}
			b.Sweep(t.Context())
			assert.Equal(t, before, publish.OSImages(b.Complete(artifact.OS)))
			require.NoError(t, b.Remove(t.Context(), k))
		}
	})
}

func TestOSImageThatCameByS3IsLookedAt(t *testing.T) {
	backends(t, func(t *testing.T, s blobs.Backend) {
		b := newFixture(t, s, nil)
		disk, text := osKey("disk"), osKey("text")
		require.NoError(t, b.config.Backend.Put(t.Context(), disk.Collection.Bucket(), disk.Object(), rawDisk(1<<20)))
		require.NoError(t, b.config.Backend.Put(t.Context(), text.Collection.Bucket(), text.Object(), []byte("no disk at all")))
		b.open()
		b.Sweep(t.Context())
		all := publish.OSImages(b.Complete(artifact.OS))
		require.Len(t, all, 1)
		assert.Equal(t, artifact.OSImage{Owner: "alpha", Cluster: "beta", Name: "disk", SHA256: digest(rawDisk(1 << 20)), Format: "raw", Length: 1 << 20, VirtualSize: 1 << 20}, all[0])
		r, err := b.Get(text)
		require.NoError(t, err)
		assert.Equal(t, "this is no OS image that can be installed: it has 14 bytes, less than a sector, and is not qcow2", r.NotServed)
		assert.NotEmpty(t, r.SHA256)
		b.Sweep(t.Context())
		again, err := b.Get(text)
		require.NoError(t, err)
		assert.Equal(t, r, again, "it is read once")
	})
}
