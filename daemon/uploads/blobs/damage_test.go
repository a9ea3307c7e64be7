package blobs_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/uploads/blobs"
	"firstlight.dev/firstlight/daemon/uploads/blobs/s3"
	"firstlight.dev/firstlight/daemon/uploads/blobs/s3test"
)

// What a store lost of an unfinished upload costs no more than what was lost.
func TestDamageInTheStoreIsFound(t *testing.T) {
	content := image(17 << 20)
	const at, partBegin = 12 << 20, 10 << 20
	type client = *s3.Client
	for _, c := range []struct {
		name   string
		server func(ctx context.Context, s client, fragment string) error
		folder func(file string) error
		goesOn int64
	}{
		{"fragment lost",
			func(ctx context.Context, s client, f string) error { return s.Remove(ctx, "binary", f) },
			func(file string) error { return os.Truncate(file, partBegin) }, partBegin},
		{"fragment torn",
			func(ctx context.Context, s client, f string) error { return s.Put(ctx, "binary", f, content[:1000]) },
			func(file string) error { return os.Truncate(file, partBegin+1000) }, partBegin},
		{"fragment of other bytes",
			func(ctx context.Context, s client, f string) error {
				return s.Put(ctx, "binary", f, make([]byte, at-partBegin))
			},
			func(file string) error {
				return errors.Join(os.Truncate(file, partBegin), os.Truncate(file, at))
			}, partBegin},
		{"parts lost",
			func(ctx context.Context, s client, _ string) error {
				uploads, err := s.PendingUploads(ctx, "binary")
				if err != nil || len(uploads) != 1 {
					return errors.New("there is not one upload")
				}
				return s.Abort(ctx, "binary", uploads[0].Object, uploads[0].ID)
			},
			os.Remove, 0},
		{"a part torn", nil, func(file string) error { return os.Truncate(file, partBegin-1) }, 0},
		{"more written than was answered for", nil, func(file string) error { return os.Truncate(file, at+5) }, at},
		{"nothing", func(context.Context, client, string) error { return nil }, func(string) error { return nil }, at},
	} {
		goesOn := func(b *fixture) {
			b.open()
			if c.goesOn != at {
				_, err := b.Append(t.Context(), key("tool"), at, -1, octets(content[at:]))
				assert.Equal(t, blobs.WrongOffset, kind(t, err))
			}
			n, err := b.Append(t.Context(), key("tool"), c.goesOn, -1, octets(content[c.goesOn:]))
			require.NoError(t, err)
			assert.Equal(t, int64(len(content)), n)
			assert.True(t, bytes.Equal(content, b.read(key("tool"))))
			assert.Empty(t, b.pending())
		}
		begun := func(b *fixture) *fixture {
			_, err := b.Create(t.Context(), key("tool"), record(key("tool"), len(content)))
			require.NoError(t, err)
			_, err = b.Append(t.Context(), key("tool"), 0, at, octets(content[:at]))
			require.NoError(t, err)
			return b
		}
		t.Run("folder: "+c.name, func(t *testing.T) {
			f := &blobs.Folder{Dir: t.TempDir()}
			b := begun(newFixture(t, f, nil))
			require.Len(t, b.pending(), 1)
			require.NoError(t, c.folder(filepath.Join(f.Dir, "binary", ".firstlight", "uploads", b.pending()[0])))
			goesOn(b)
		})
		t.Run("s3: "+c.name, func(t *testing.T) {
			if c.server == nil {
				t.Skip("a folder's own")
			}
			s := server(t, s3test.StartInMemory(t, nil))
			b := begun(newFixture(t, s, nil))
			fragments := b.names(".firstlight/fragments/")
			require.Len(t, fragments, 1)
			require.NoError(t, c.server(t.Context(), s, fragments[0]))
			goesOn(b)
		})
	}
}

// A completion that is cut off anywhere is found and brought to its end.
func TestCompletionCutOff(t *testing.T) {
	completes := func(r *http.Request) bool { return r.Method == "POST" && r.URL.Query().Has("uploadId") }
	writes := func(r *http.Request) bool { return r.Method == "PUT" && strings.Contains(r.URL.Path, "/records/") }
	for _, c := range []struct {
		name    string
		noticed bool
		cut     func() func(r *http.Request) (before, after bool) // answer 500 instead of doing it, or after it was done
	}{
		{"before the state is written", true, func() func(*http.Request) (bool, bool) {
			return func(r *http.Request) (bool, bool) { return writes(r), false }
		}},
		{"before the parts are one", true, func() func(*http.Request) (bool, bool) {
			return func(r *http.Request) (bool, bool) { return completes(r), false }
		}},
		{"answer lost after the parts are one", false, func() func(*http.Request) (bool, bool) {
			return func(r *http.Request) (bool, bool) { return false, completes(r) }
		}},
		{"before the record says so", true, func() func(*http.Request) (bool, bool) {
			var whole atomic.Bool
			return func(r *http.Request) (bool, bool) {
				if completes(r) {
					whole.Store(true)
				}
				return whole.Load() && writes(r), false
			}
		}},
	} {
		completionCutOff(t, c.name+", then swept", c.noticed, c.cut(), func(b *fixture) { b.Sweep(t.Context()) })
		completionCutOff(t, c.name+", then asked for", c.noticed, c.cut(), func(b *fixture) {
			r, err := b.Get(key("tool"))
			require.NoError(t, err)
			if !r.Complete {
				_, err = b.Append(t.Context(), key("tool"), r.ImageLength, 0, octets(nil))
				require.NoError(t, err, "nothing is asked for again")
			}
		})
	}
}

func completionCutOff(t *testing.T, name string, noticed bool, cut func(*http.Request) (before, after bool), goOn func(*fixture)) {
	content := image(11 << 20)
	t.Run(name, func(t *testing.T) {
		var broken atomic.Bool
		config := s3test.StartInMemory(t, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				before, after := cut(r)
				if broken.Load() && before {
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
				if broken.Load() && after {
					next.ServeHTTP(discard{}, r)
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
				next.ServeHTTP(w, r)
			})
		})
		config.RetryTimeout = 100 * time.Millisecond
		b := newFixture(t, server(t, config), nil)
		_, err := b.Create(t.Context(), key("tool"), record(key("tool"), len(content)))
		require.NoError(t, err)
		_, err = b.Append(t.Context(), key("tool"), 0, 10<<20, octets(content[:10<<20]))
		require.NoError(t, err)
		broken.Store(true)
		_, err = b.Append(t.Context(), key("tool"), 10<<20, 1<<20, octets(content[10<<20:]))
		if noticed {
			assert.Equal(t, blobs.Down, kind(t, err))
		} else {
			assert.NoError(t, err)
		}
		broken.Store(false)
		b.open()
		if r, err := b.Get(key("tool")); assert.NoError(t, err) && r.ImageOffset < r.ImageLength { // the last octets were not answered for
			_, err := b.Append(t.Context(), key("tool"), r.ImageOffset, -1, octets(content[r.ImageOffset:]))
			require.NoError(t, err)
		}
		goOn(b)
		assert.True(t, bytes.Equal(content, b.read(key("tool"))))
		assert.ElementsMatch(t, []string{".firstlight/records/alpha/beta/tool", "alpha/beta/tool"}, b.names(""))
	})
}

type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}

// Parts are on their way side by side. One that the store has no room for ends what counts there, also
// if those behind it arrived.
func TestPartThatFindsNoRoomLeavesNoGap(t *testing.T) {
	var full atomic.Bool
	arrived := make(chan struct{})
	config := s3test.StartInMemory(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch number := r.URL.Query().Get("partNumber"); {
			case full.Load() && number == "2":
				<-arrived
				w.Header().Set("Content-Type", "application/xml")
				w.WriteHeader(http.StatusInsufficientStorage)
				_, _ = w.Write([]byte(`<Error><Code>InsufficientStorage</Code></Error>`))
			case full.Load() && number == "3":
				next.ServeHTTP(w, r)
				close(arrived)
			default:
				next.ServeHTTP(w, r)
			}
		})
	})
	full.Store(true)
	b := newFixture(t, server(t, config), nil)
	content := image(18 << 20)
	_, err := b.Create(t.Context(), key("tool"), record(key("tool"), len(content)))
	require.NoError(t, err)
	_, err = b.Append(t.Context(), key("tool"), 0, -1, octets(content))
	assert.Equal(t, blobs.Full, kind(t, err))
	r, err := b.Get(key("tool"))
	require.NoError(t, err)
	assert.Equal(t, int64(blobs.MinPart), r.ImageOffset, "the first part, which was there before the store was full")
	full.Store(false)
	_, err = b.Append(t.Context(), key("tool"), r.ImageOffset, -1, octets(content[r.ImageOffset:]))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(content, b.read(key("tool"))))
}

// What arrived counts as soon as it did, also while the client is slow with the next part: a kill would
// not take it away.
func TestPartThatArrivedIsKeptWhileTheNextIsAwaited(t *testing.T) {
	backends(t, func(t *testing.T, s blobs.Backend) {
		b := newFixture(t, s, nil)
		content := image(12 << 20)
		_, err := b.Create(t.Context(), key("tool"), record(key("tool"), len(content)))
		require.NoError(t, err)
		from, to := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			_, err := b.Append(t.Context(), key("tool"), 0, -1, piece{from})
			ended <- err
		}()
		_, err = to.Write(content[:6<<20])
		require.NoError(t, err)
		assert.Eventually(t, func() bool {
			after, err := blobs.Open(t.Context(), b.config) // as after a kill
			require.NoError(t, err)
			r, err := after.Get(key("tool"))
			return err == nil && r.ImageOffset == blobs.MinPart
		}, time.Minute, 10*time.Millisecond)
		_, err = to.Write(content[6<<20:])
		require.NoError(t, err)
		require.NoError(t, to.Close())
		require.NoError(t, <-ended)
		assert.True(t, bytes.Equal(content, b.read(key("tool"))))
	})
}
