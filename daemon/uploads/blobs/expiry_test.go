package blobs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/uploads/blobs"
)

// An appliance whose clock stood is set right while an upload waits, or while it is off.
func TestClockThatIsSetThrowsNoUploadAway(t *testing.T) {
	backends(t, func(t *testing.T, s blobs.Backend) {
		b := newFixture(t, s, nil)
		content := image(6 << 20)
		_, err := b.Create(t.Context(), key("tool"), record(key("tool"), len(content)))
		require.NoError(t, err)
		_, err = b.Append(t.Context(), key("tool"), 0, 1<<20, octets(content[:1<<20]))
		require.NoError(t, err)
		for range 2 {
			b.Sweep(t.Context())
			b.now = b.now.AddDate(1, 0, 0)
			b.Sweep(t.Context())
			_, err = b.Get(key("tool"))
			require.NoError(t, err)
			b.open()
		}
		// What counts is how long agents saw it wait, all of them together.
		for range 3 {
			b.wait(blobs.Expiry/3 + time.Hour)
			_, err = b.Get(key("tool"))
			require.NoError(t, err)
			b.Sweep(t.Context())
			b.open()
		}
		_, err = b.Get(key("tool"))
		assert.Equal(t, blobs.NotFound, kind(t, err))
	})
}

func TestWaitingBeginsAnewWhenAnUploadGoesOn(t *testing.T) {
	backends(t, func(t *testing.T, s blobs.Backend) {
		b := newFixture(t, s, nil)
		content := image(6 << 20)
		_, err := b.Create(t.Context(), key("tool"), record(key("tool"), len(content)))
		require.NoError(t, err)
		for i := range 4 {
			b.wait(blobs.Expiry - time.Hour)
			b.Sweep(t.Context())
			_, err = b.Append(t.Context(), key("tool"), int64(i)<<20, 1<<20, octets(content[i<<20:(i+1)<<20]))
			require.NoError(t, err)
		}
	})
}
