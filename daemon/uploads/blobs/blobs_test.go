package blobs_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
	"firstlight.dev/firstlight/daemon/uploads/blobs/s3"
	"firstlight.dev/firstlight/daemon/uploads/blobs/s3test"
)

// piece is a body that cannot be interrupted because it never waits.
type piece struct{ io.Reader }

func (piece) Interrupt() {}

func octets(b []byte) piece { return piece{bytes.NewReader(b)} }

func image(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>8 ^ i*31)
	}
	return b
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// fixture is a store and its backend.
type fixture struct {
	t      *testing.T
	config blobs.Config
	now    time.Time
	up     time.Duration
	*blobs.Store
}

// backends runs a test over a folder and over an S3 server in memory.
func backends(t *testing.T, test func(t *testing.T, s blobs.Backend)) {
	t.Run("folder", func(t *testing.T) { test(t, &blobs.Folder{Dir: t.TempDir()}) })
	t.Run("s3", func(t *testing.T) { test(t, server(t, s3test.StartInMemory(t, nil))) })
}

func server(t *testing.T, c s3.Config) *s3.Client {
	c.Scratch = t.TempDir()
	s, err := s3.New(c)
	require.NoError(t, err)
	return s
}

func newFixture(t *testing.T, s blobs.Backend, change func(*blobs.Config)) *fixture {
	b := &fixture{t: t, now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	b.config = blobs.Config{Backend: s, Scratch: t.TempDir(), PartSize: blobs.MinPart, Now: func() time.Time { return b.now }, Uptime: func() time.Duration { return b.up }, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&b.config)
	}
	b.open()
	return b
}

// wait has so much time pass for an agent that sweeps now and then.
func (b *fixture) wait(d time.Duration) {
	b.Sweep(b.t.Context())
	b.now, b.up = b.now.Add(d), b.up+d
}

// open is what a start of the agent does.
func (b *fixture) open() {
	var err error
	b.Store, err = blobs.Open(b.t.Context(), b.config)
	require.NoError(b.t, err)
}

func key(name string) artifact.Key {
	return artifact.Key{Collection: artifact.Binary, Owner: "alpha", Cluster: "beta", Name: name}
}

func record(k artifact.Key, length int) artifact.Metadata {
	return artifact.Metadata{Owner: k.Owner, ClusterName: k.Cluster, ImageName: k.Name, ImageLength: int64(length), Type: "tool",
		Description: artifact.Description{ImageRecords: []map[string]string{{"repo": "icn"}}}}
}

// bring announces and sends a whole artifact.
func (b *fixture) bring(k artifact.Key, content []byte) artifact.Metadata {
	b.t.Helper()
	_, err := b.Create(b.t.Context(), k, record(k, len(content)))
	require.NoError(b.t, err)
	_, err = b.Append(b.t.Context(), k, 0, int64(len(content)), octets(content))
	require.NoError(b.t, err)
	r, err := b.Get(k)
	require.NoError(b.t, err)
	require.True(b.t, r.Complete)
	return r
}

func (b *fixture) read(k artifact.Key) []byte {
	b.t.Helper()
	c, _, err := b.Content(b.t.Context(), k)
	require.NoError(b.t, err)
	defer c.Close()
	data, err := io.ReadAll(c)
	require.NoError(b.t, err)
	return data
}

// names lists the objects of the bucket.
func (b *fixture) names(prefix string) []string {
	names := []string{}
	require.NoError(b.t, b.config.Backend.List(b.t.Context(), "binary", prefix, func(o blobs.Object) error { names = append(names, o.Name); return nil }))
	return names
}

// pending lists the unfinished uploads of the bucket.
func (b *fixture) pending() (ids []string) {
	ids, err := s3test.PendingUploads(b.t.Context(), b.config.Backend, "binary")
	require.NoError(b.t, err)
	return ids
}

func kind(t *testing.T, err error) blobs.Kind {
	t.Helper()
	var e *blobs.Error
	require.ErrorAs(t, err, &e)
	return e.Kind
}

func TestRecordIsMadeOfItsObject(t *testing.T) {
	backends(t, func(t *testing.T, s blobs.Backend) {
		b := newFixture(t, s, nil)
		content := image(6 << 20)
		before := b.bring(key("tool"), content)
		require.NoError(t, b.config.Backend.Remove(t.Context(), "binary", ".firstlight/records/alpha/beta/tool"))
		b.open()
		after, err := b.Get(key("tool"))
		require.NoError(t, err)
		assert.Empty(t, after.SHA256, "it was not announced, so it is not known yet")
		b.Sweep(t.Context())
		after, err = b.Get(key("tool"))
		require.NoError(t, err)
		before.Updated, after.Updated = time.Time{}, time.Time{}
		assert.Equal(t, before, after, "description and all")

		b.open()
		again, err := b.Get(key("tool"))
		require.NoError(t, err)
		assert.Equal(t, after.SHA256, again.SHA256, "it is kept from then on")
	})
}

func TestObjectThatCameByS3IsAnArtifact(t *testing.T) {
	backends(t, func(t *testing.T, s blobs.Backend) {
		b := newFixture(t, s, nil)
		require.NoError(t, b.config.Backend.Put(t.Context(), "binary", "alpha/beta/foreign", []byte("by another client")))
		require.NoError(t, b.config.Backend.Put(t.Context(), "binary", "not/ours", []byte("x")))
		require.NoError(t, b.config.Backend.Put(t.Context(), "binary", "Not/a/label", []byte("x")))
		b.open()
		b.Sweep(t.Context())
		page, more := b.List(artifact.Binary, "alpha", "beta", "", 10)
		require.Len(t, page, 1)
		assert.False(t, more)
		assert.Equal(t, digest([]byte("by another client")), page[0].SHA256)
		assert.True(t, page[0].Complete)
		assert.Equal(t, "by another client", string(b.read(key("foreign"))))
	})
}

// TestAnUploadReplacesAnObjectAsLongAsItself: an object that came by another way while an artifact of its name and length
// was sent is not taken for that artifact.
func TestAnUploadReplacesAnObjectAsLongAsItself(t *testing.T) {
	backends(t, func(t *testing.T, s blobs.Backend) {
		b := newFixture(t, s, nil)
		content := image(6 << 20)
		_, err := b.Create(t.Context(), key("tool"), record(key("tool"), len(content)))
		require.NoError(t, err)
		_, err = b.Append(t.Context(), key("tool"), 0, 5<<20, octets(content[:5<<20]))
		require.NoError(t, err)
		require.NoError(t, b.config.Backend.Put(t.Context(), "binary", "alpha/beta/tool", make([]byte, len(content))))

		_, err = b.Append(t.Context(), key("tool"), 5<<20, 1<<20, octets(content[5<<20:]))
		require.NoError(t, err)
		r, err := b.Get(key("tool"))
		require.NoError(t, err)
		assert.True(t, r.Complete)
		assert.Equal(t, digest(content), r.SHA256)
		assert.Equal(t, digest(content), digest(b.read(key("tool"))))
	})
}

func TestObjectThatIsLostIsAskedForAgain(t *testing.T) {
	backends(t, func(t *testing.T, s blobs.Backend) {
		b := newFixture(t, s, nil)
		content := image(6 << 20)
		b.bring(key("tool"), content)
		require.NoError(t, b.config.Backend.Remove(t.Context(), "binary", "alpha/beta/tool"))
		b.open()
		r, err := b.Get(key("tool"))
		require.NoError(t, err)
		assert.False(t, r.Complete)
		assert.Zero(t, r.ImageOffset)
		_, err = b.Append(t.Context(), key("tool"), 0, int64(len(content)), octets(content))
		require.NoError(t, err)
		assert.Equal(t, content, b.read(key("tool")))
	})
}

func TestUploadThatNobodyContinuesExpires(t *testing.T) {
	backends(t, func(t *testing.T, s blobs.Backend) {
		b := newFixture(t, s, nil)
		b.bring(key("whole"), image(1000))
		for _, name := range []string{"begun", "continued", "announced"} {
			_, err := b.Create(t.Context(), key(name), record(key(name), 11<<20))
			require.NoError(t, err)
		}
		for _, name := range []string{"begun", "continued"} {
			_, err := b.Append(t.Context(), key(name), 0, 6<<20, octets(image(6<<20)))
			require.NoError(t, err)
		}
		b.wait(blobs.Expiry - time.Hour)
		_, err := b.Append(t.Context(), key("continued"), 6<<20, 1, octets([]byte{0}))
		require.NoError(t, err)
		b.wait(2 * time.Hour)
		b.Sweep(t.Context())
		page, _ := b.List(artifact.Binary, "alpha", "beta", "", 10)
		var left []string
		for _, r := range page {
			left = append(left, r.ImageName)
		}
		assert.Equal(t, []string{"continued", "whole"}, left)
		assert.Len(t, b.names(".firstlight/records/"), 2)
		assert.Len(t, b.pending(), 1, "and what was received of them is gone")
	})
}

func TestQuota(t *testing.T) {
	backends(t, func(t *testing.T, s blobs.Backend) {
		b := newFixture(t, s, func(c *blobs.Config) {
			c.Quota = func(owner string) int64 { return map[string]int64{"alpha": 1000}[owner] }
		})
		b.bring(key("first"), image(600))
		_, err := b.Create(t.Context(), key("second"), record(key("second"), 401))
		assert.Equal(t, blobs.TooLarge, kind(t, err))
		_, err = b.Create(t.Context(), key("second"), record(key("second"), 400))
		assert.NoError(t, err, "what is announced counts, nothing else")
		_, err = b.Replace(t.Context(), key("second"), record(key("second"), 401))
		assert.Equal(t, blobs.TooLarge, kind(t, err))
		_, err = b.Replace(t.Context(), key("second"), record(key("second"), 399))
		assert.NoError(t, err)
		other := artifact.Key{Collection: artifact.Container, Owner: "alpha", Cluster: "gamma", Name: "second"}
		_, err = b.Create(t.Context(), other, record(other, 2))
		assert.Equal(t, blobs.TooLarge, kind(t, err), "over all collections and clusters")
		other.Owner = "delta"
		_, err = b.Create(t.Context(), other, record(other, 1<<30))
		assert.NoError(t, err, "others are not counted, and have no quota")
		require.NoError(t, b.Remove(t.Context(), key("first")))
		_, err = b.Create(t.Context(), key("third"), record(key("third"), 601))
		assert.NoError(t, err)
	})
}

func TestWhatIsInUseStays(t *testing.T) {
	backends(t, func(t *testing.T, s blobs.Backend) {
		users := []string{"BareMetalHost metal3/node-1"}
		b := newFixture(t, s, func(c *blobs.Config) {
			c.InUse = func(_ context.Context, k artifact.Key) ([]string, error) {
				if k.Name == "outage" {
					return nil, errors.New("the API server is down")
				}
				return users, nil
			}
		})
		b.bring(key("tool"), image(100))
		b.bring(key("outage"), image(100))
		err := b.Remove(t.Context(), key("tool"))
		assert.Equal(t, blobs.InUse, kind(t, err))
		assert.ErrorContains(t, err, "tool is in use by BareMetalHost metal3/node-1; it cannot be removed")
		_, err = b.Replace(t.Context(), key("tool"), record(key("tool"), 101))
		assert.Equal(t, blobs.InUse, kind(t, err))
		same := record(key("tool"), 100)
		same.Type = "better described"
		r, err := b.Replace(t.Context(), key("tool"), same)
		require.NoError(t, err, "its description is not what is used")
		assert.True(t, r.Complete)
		assert.Equal(t, blobs.Down, kind(t, b.Remove(t.Context(), key("outage"))), "not knowing is not a no")
		users = nil
		assert.NoError(t, b.Remove(t.Context(), key("tool")))
	})
}

// A removal that is cut off in between is finished by the next start, and nothing rises again.
func TestRemovalCutOff(t *testing.T) {
	var broken atomic.Bool
	config := s3test.StartInMemory(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if broken.Load() && r.Method == "DELETE" {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	config.RetryTimeout = 50 * time.Millisecond
	b := newFixture(t, server(t, config), nil)
	b.bring(key("tool"), image(100))
	broken.Store(true)
	require.NoError(t, b.Remove(t.Context(), key("tool")), "it is gone for everybody")
	_, err := b.Get(key("tool"))
	assert.Equal(t, blobs.NotFound, kind(t, err))
	assert.Len(t, b.names(""), 2)
	broken.Store(false)
	b.open()
	_, err = b.Get(key("tool"))
	assert.Equal(t, blobs.NotFound, kind(t, err))
	assert.Empty(t, b.names(""))
}

func TestRecordsOfOthersMakingAreLeftAlone(t *testing.T) {
	backends(t, func(t *testing.T, s blobs.Backend) {
		b := newFixture(t, s, nil)
		put := func(name, text string) {
			require.NoError(t, b.config.Backend.Put(t.Context(), "binary", ".firstlight/records/alpha/beta/"+name, []byte(text)))
		}
		put("torn", `{"record": {"owner": "al`)
		put("another", `{"record": {"owner":"x","cluster_name":"beta","image_name":"another","image_length":5,"image_offset":5,"upload_complete":true}}`)
		put("beyond", `{"record": {"owner":"alpha","cluster_name":"beta","image_name":"beyond","image_length":5,"image_offset":6},"upload":{"serial":"a","part_size":5242880}}`)
		put("hash", `{"record": {"owner":"alpha","cluster_name":"beta","image_name":"hash","image_length":5},"upload":{"serial":"a","part_size":5242880,"hash":"AAAA"}}`)
		put("path", `{"record": {"owner":"alpha","cluster_name":"beta","image_name":"path","image_length":5},"upload":{"serial":"../../x","part_size":5242880}}`)
		put("parts", `{"record": {"owner":"alpha","cluster_name":"beta","image_name":"parts","image_length":5},"upload":{"serial":"a","part_size":0}}`)
		require.NoError(t, b.config.Backend.Put(t.Context(), "binary", "alpha/beta/torn", []byte("whole")))
		b.open()
		page, _ := b.List(artifact.Binary, "alpha", "beta", "", 10)
		require.Len(t, page, 1, "%v", page)
		assert.Equal(t, "torn", page[0].ImageName, "its object is there")
	})
}

func TestPartsGrowWithTheArtifact(t *testing.T) {
	b := newFixture(t, server(t, s3test.StartInMemory(t, nil)), nil)
	k := key("huge")
	_, err := b.Create(t.Context(), k, record(k, artifact.MaxLength))
	require.NoError(t, err)
	data, err := b.config.Backend.Get(t.Context(), "binary", ".firstlight/records/alpha/beta/huge", 1<<20)
	require.NoError(t, err)
	assert.Contains(t, string(data), `"part_size":550502400`, "525 MiB, 10,000 of which hold 5 TiB")
}
