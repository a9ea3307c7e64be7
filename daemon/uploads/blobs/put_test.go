package blobs_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
)

func (b *fixture) put(k artifact.Key, content []byte) (artifact.Metadata, error) {
	return b.Put(b.t.Context(), k, artifact.Metadata{ImageLength: int64(len(content))}, 0, bytes.NewReader(content))
}

func TestAWholeArtifactTakesThePlaceOfWhatHasItsName(t *testing.T) {
	backends(t, func(t *testing.T, s blobs.Backend) {
		b := newFixture(t, s, nil)
		first, second := image(11<<20+7), image(3<<20)
		r, err := b.put(key("tool"), first)
		require.NoError(t, err)
		assert.True(t, r.Complete)
		assert.Equal(t, digest(first), r.SHA256)
		assert.Equal(t, first, b.read(key("tool")))

		r, err = b.put(key("tool"), second)
		require.NoError(t, err)
		assert.Equal(t, digest(second), r.SHA256)
		b.open()
		assert.Equal(t, second, b.read(key("tool")))

		// Also of an upload that is not complete, which ends.
		_, err = b.Create(t.Context(), key("slow"), record(key("slow"), len(first)))
		require.NoError(t, err)
		_, err = b.Append(t.Context(), key("slow"), 0, 6<<20, octets(first[:6<<20]))
		require.NoError(t, err)
		_, err = b.put(key("slow"), second)
		require.NoError(t, err)
		_, err = b.Append(t.Context(), key("slow"), 6<<20, 5, octets(first[:5]))
		assert.Equal(t, blobs.Completed, kind(t, err))
		b.open()
		assert.Equal(t, second, b.read(key("slow")))
	})
}

func TestWhatIsRefusedOfAWholeArtifactLeavesTheOldOne(t *testing.T) {
	used := []string(nil)
	b := newFixture(t, &blobs.Folder{Dir: t.TempDir()}, func(c *blobs.Config) {
		c.Quota = func(string) int64 { return 20 << 20 }
		c.InUse = func(context.Context, artifact.Key) ([]string, error) { return used, nil }
	})
	old, k := image(9<<20), key("tool")
	_, err := b.put(k, old)
	require.NoError(t, err)

	put := func(length int, sum string, body io.Reader) error {
		_, err := b.Put(t.Context(), k, artifact.Metadata{ImageLength: int64(length), SHA256: sum}, 0, body)
		return err
	}
	fresh := image(8 << 20)
	assert.Equal(t, blobs.Cut, kind(t, put(len(fresh), "", bytes.NewReader(fresh[:6<<20]))))
	assert.Equal(t, blobs.Cut, kind(t, put(len(fresh), "", io.MultiReader(bytes.NewReader(fresh), iotest.ErrReader(io.ErrUnexpectedEOF)))))
	assert.Equal(t, blobs.WrongLength, kind(t, put(len(fresh)-1, "", bytes.NewReader(fresh))))
	assert.Equal(t, blobs.Refused, kind(t, put(len(fresh), digest(old), bytes.NewReader(fresh))))
	assert.Equal(t, blobs.TooLarge, kind(t, put(21<<20, "", bytes.NewReader(nil))))
	require.NoError(t, b.CheckQuota("alpha", 11<<20))
	assert.Equal(t, blobs.TooLarge, kind(t, b.CheckQuota("alpha", 11<<20+1)))
	used = []string{"Software default/tool"}
	assert.Equal(t, blobs.InUse, kind(t, put(len(fresh), "", bytes.NewReader(fresh))))

	assert.Equal(t, old, b.read(k))
	left, err := os.ReadDir(b.config.Backend.(*blobs.Folder).Dir + "/binary/.firstlight/uploads")
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestTwoWholeArtifactsTogetherStayBelowTheQuota(t *testing.T) {
	b := newFixture(t, &blobs.Folder{Dir: t.TempDir()}, func(c *blobs.Config) {
		c.Quota = func(string) int64 { return 10 << 20 }
	})
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := b.Put(t.Context(), key("one"), artifact.Metadata{ImageLength: 6 << 20}, 0, reader)
		done <- err
	}()
	_, err := writer.Write(image(1 << 20))
	require.NoError(t, err)
	_, err = b.put(key("two"), image(6<<20))
	assert.Equal(t, blobs.TooLarge, kind(t, err))
	_, err = writer.Write(image(5 << 20))
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	require.NoError(t, <-done)
	assert.Len(t, b.read(key("one")), 6<<20)
}

// powerCut is a folder whose machine loses power at one call of it, before or after it did what it was asked.
type powerCut struct {
	*blobs.Folder
	calls, at int
	after     bool
}

var errPower = errors.New("the power is gone")

func (p *powerCut) do(what func() error) error {
	p.calls++
	if p.calls < p.at {
		return what()
	}
	if p.calls == p.at && p.after {
		_ = what()
	}
	return errPower
}

func (p *powerCut) Put(ctx context.Context, bucket, object string, data []byte) error {
	return p.do(func() error { return p.Folder.Put(ctx, bucket, object, data) })
}

func (p *powerCut) Stat(ctx context.Context, bucket, object string) (o blobs.Object, err error) {
	err = p.do(func() error { o, err = p.Folder.Stat(ctx, bucket, object); return err })
	return o, err
}

func (p *powerCut) Remove(ctx context.Context, bucket, object string) error {
	return p.do(func() error { return p.Folder.Remove(ctx, bucket, object) })
}

func (p *powerCut) PutPart(ctx context.Context, u blobs.Upload, n int, f *os.File, size int64, sum uint32) error {
	return p.do(func() error { return p.Folder.PutPart(ctx, u, n, f, size, sum) })
}

func (p *powerCut) Complete(ctx context.Context, u blobs.Upload, n int64, meta map[string]string) (lost string, err error) {
	err = p.do(func() error { lost, err = p.Folder.Complete(ctx, u, n, meta); return err })
	return lost, err
}

func (p *powerCut) Discard(ctx context.Context, u blobs.Upload) error {
	return p.do(func() error { return p.Folder.Discard(ctx, u) })
}

// TestAPowerCutLeavesTheOldOrTheNewArtifact: whatever the moment, the record is of the octets that are there; and
// what was answered for is there.
func TestAPowerCutLeavesTheOldOrTheNewArtifact(t *testing.T) {
	old, fresh := image(6<<20), append(image(6<<20-1), 'x') // of one length: only the digest tells
	befores := map[string]func(b *fixture) [][]byte{
		"nothing": func(*fixture) [][]byte { return [][]byte{nil, fresh} },
		"an artifact": func(b *fixture) [][]byte {
			_, err := b.put(key("tool"), old)
			require.NoError(t, err)
			return [][]byte{old, fresh}
		},
		"an upload": func(b *fixture) [][]byte {
			_, err := b.Create(t.Context(), key("tool"), record(key("tool"), len(old)))
			require.NoError(t, err)
			_, err = b.Append(t.Context(), key("tool"), 0, 5<<20, octets(old[:5<<20]))
			require.NoError(t, err)
			return [][]byte{nil, fresh}
		},
	}
	for name, before := range befores {
		for at, finished := 1, false; !finished; at++ {
			for _, after := range []bool{false, true} {
				folder := &blobs.Folder{Dir: t.TempDir()}
				b := newFixture(t, folder, nil)
				may := before(b)
				cut := &powerCut{Folder: folder, at: at, after: after}
				b.config.Backend = cut
				b.open()
				cut.calls = 0
				_, err := b.put(key("tool"), fresh)
				if finished = err == nil && cut.calls < at; err == nil {
					may = may[1:]
				}

				b.config.Backend = folder
				b.open()
				b.wait(time.Minute)
				r, err := b.Get(key("tool"))
				var have []byte
				if err == nil && r.Complete {
					have = b.read(key("tool"))
					assert.Equal(t, digest(have), r.SHA256, "%s, cut at call %d, after it: %v", name, at, after)
				}
				assert.Contains(t, may, have, "%s, cut at call %d, after it: %v", name, at, after)
			}
		}
	}
}
