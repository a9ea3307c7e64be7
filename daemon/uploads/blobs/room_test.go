package blobs_test

import (
	"bytes"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
)

const scratchRoom = 4 * blobs.MinPart

// onDisk gives a store a disk of 10 GiB, of which so much is free.
func onDisk(free *atomic.Int64) func(*blobs.Config) {
	return func(c *blobs.Config) {
		c.Local, c.Pushed = true, true
		c.Disk = func() (int64, int64, error) { return free.Load(), 10 << 30, nil }
	}
}

func TestReserve(t *testing.T) {
	assert.Equal(t, int64(1<<30), artifact.ReservedSpace(10<<30))
	assert.Equal(t, int64(3e12), artifact.ReservedSpace(1e14))
}

func TestTheAppliancesOwnRoomIsNotForUploads(t *testing.T) {
	backends(t, func(t *testing.T, s blobs.Backend) {
		var free atomic.Int64
		b := newFixture(t, s, onDisk(&free))
		free.Store(1<<30 + scratchRoom + 99)
		_, err := b.Create(t.Context(), key("tool"), record(key("tool"), 100))
		assert.Equal(t, blobs.Full, kind(t, err))
		free.Add(1)
		_, err = b.Create(t.Context(), key("tool"), record(key("tool"), 100))
		require.NoError(t, err)

		archive := artifact.Key{Collection: artifact.Container, Owner: "alpha", Cluster: "beta", Name: "app"}
		free.Add(199)
		_, err = b.Create(t.Context(), archive, record(archive, 100))
		assert.Equal(t, blobs.Full, kind(t, err), "its layers need their room in the registry as well")
		free.Add(1)
		_, err = b.Create(t.Context(), archive, record(archive, 100))
		require.NoError(t, err)
		_, err = b.Append(t.Context(), archive, 0, 100, octets(image(100)))
		require.NoError(t, err)
		free.Add(-100)
		_, err = b.Create(t.Context(), key("more"), record(key("more"), 100))
		assert.Equal(t, blobs.Full, kind(t, err), "until it is pushed")
		r, err := b.Get(archive)
		require.NoError(t, err)
		require.NoError(t, b.SetServed(t.Context(), archive, r.SHA256, []string{"example/app:1"}, ""))
		_, err = b.Create(t.Context(), key("more"), record(key("more"), 100))
		require.NoError(t, err)
	})
}

// The disk fills while an upload comes: it ends before the appliance's own room does, and goes on later.
func TestAnUploadStopsAtTheAppliancesOwnRoom(t *testing.T) {
	backends(t, func(t *testing.T, s blobs.Backend) {
		var free atomic.Int64
		free.Store(9 << 30)
		b := newFixture(t, s, onDisk(&free))
		content := image(12 << 20)
		_, err := b.Create(t.Context(), key("tool"), record(key("tool"), len(content)))
		require.NoError(t, err)
		_, err = b.Append(t.Context(), key("tool"), 0, 6<<20, octets(content[:6<<20]))
		require.NoError(t, err)
		free.Store(1<<30 + 1<<20)
		_, err = b.Append(t.Context(), key("tool"), 6<<20, -1, octets(content[6<<20:]))
		assert.Equal(t, blobs.Full, kind(t, err), "before the first octet")
		r, err := b.Get(key("tool"))
		require.NoError(t, err)
		assert.Equal(t, int64(6<<20), r.ImageOffset)

		free.Store(1<<30 + 4<<20) // for what is left of the part, not for the last one
		sending := &filling{octets(content[6<<20:]), &free}
		_, err = b.Append(t.Context(), key("tool"), 6<<20, -1, sending)
		assert.Equal(t, blobs.Full, kind(t, err), "before the next part")
		r, err = b.Get(key("tool"))
		require.NoError(t, err)
		assert.Equal(t, int64(10<<20), r.ImageOffset, "what was there is kept")

		free.Store(9 << 30)
		_, err = b.Append(t.Context(), key("tool"), 10<<20, -1, octets(content[10<<20:]))
		require.NoError(t, err)
		assert.True(t, bytes.Equal(content, b.read(key("tool"))))
	})
}

// filling takes from the disk what it gives.
type filling struct {
	piece
	free *atomic.Int64
}

func (f *filling) Read(p []byte) (int, error) {
	n, err := f.piece.Read(p)
	f.free.Add(-int64(n))
	return n, err
}
