package depot_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/artifact/depot"
	"firstlight.dev/firstlight/daemon/artifact/store"
	"firstlight.dev/firstlight/daemon/artifact/storelab"
)

// What a store lost of an unfinished upload costs no more than what was lost.
func TestDamageInTheStoreIsFound(t *testing.T) {
	content := image(17 << 20)
	const at, partBegin = 12 << 20, 10 << 20
	for _, c := range []struct {
		name   string
		damage func(ctx context.Context, s *store.Store, fragment string) error
		goesOn int64
	}{
		{"fragment lost", func(ctx context.Context, s *store.Store, f string) error { return s.Remove(ctx, "binary", f) }, partBegin},
		{"fragment torn", func(ctx context.Context, s *store.Store, f string) error {
			return s.Put(ctx, "binary", f, content[:1000])
		}, partBegin},
		{"fragment of other octets", func(ctx context.Context, s *store.Store, f string) error {
			return s.Put(ctx, "binary", f, make([]byte, at-partBegin))
		}, partBegin},
		{"parts lost", func(ctx context.Context, s *store.Store, _ string) error {
			uploads, err := s.Uploads(ctx, "binary")
			if err != nil || len(uploads) != 1 {
				return errors.New("there is not one upload")
			}
			return s.Abort(ctx, "binary", uploads[0].Object, uploads[0].ID)
		}, 0},
		{"nothing", func(context.Context, *store.Store, string) error { return nil }, at},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t, storelab.Memory(t, nil), nil)
			_, err := b.Create(t.Context(), key("tool"), record(key("tool"), len(content)))
			require.NoError(t, err)
			_, err = b.Append(t.Context(), key("tool"), 0, at, octets(content[:at]))
			require.NoError(t, err)
			fragments := b.names(".firstlight/fragments/")
			require.Len(t, fragments, 1)
			require.NoError(t, c.damage(t.Context(), b.config.Store, fragments[0]))
			b.open()
			if c.goesOn != at {
				_, err = b.Append(t.Context(), key("tool"), at, -1, octets(content[at:]))
				assert.Equal(t, depot.WrongOffset, kind(t, err))
			}
			n, err := b.Append(t.Context(), key("tool"), c.goesOn, -1, octets(content[c.goesOn:]))
			require.NoError(t, err)
			assert.Equal(t, int64(len(content)), n)
			assert.True(t, bytes.Equal(content, b.read(key("tool"))))
		})
	}
}

// A completion that is cut off anywhere is found and brought to its end.
func TestCompletionCutOff(t *testing.T) {
	content := image(11 << 20)
	for _, c := range []struct {
		name string
		cut  func(r *http.Request) (before, after bool) // answer 500 instead of doing it, or after it was done
	}{
		{"before the parts are one", func(r *http.Request) (bool, bool) {
			return r.Method == "POST" && r.URL.Query().Has("uploadId"), false
		}},
		{"answer lost after the parts are one", func(r *http.Request) (bool, bool) {
			return false, r.Method == "POST" && r.URL.Query().Has("uploadId")
		}},
		{"before the record says so", func(r *http.Request) (bool, bool) {
			return r.Method == "PUT" && strings.Contains(r.URL.Path, "/records/"), false
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var broken atomic.Bool
			config := storelab.Memory(t, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					before, after := c.cut(r)
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
			config.Patience = 100 * time.Millisecond
			b := newBed(t, config, nil)
			_, err := b.Create(t.Context(), key("tool"), record(key("tool"), len(content)))
			require.NoError(t, err)
			_, err = b.Append(t.Context(), key("tool"), 0, 10<<20, octets(content[:10<<20]))
			require.NoError(t, err)
			broken.Store(true)
			_, err = b.Append(t.Context(), key("tool"), 10<<20, 1<<20, octets(content[10<<20:]))
			if c.name != "answer lost after the parts are one" { // that one is noticed at once
				assert.Equal(t, depot.Down, kind(t, err))
			} else {
				assert.NoError(t, err)
			}
			broken.Store(false)
			b.open()
			b.Sweep(t.Context())
			r, err := b.Get(key("tool"))
			require.NoError(t, err)
			if !r.Complete { // the last octets were not answered for, and are sent again
				_, err := b.Append(t.Context(), key("tool"), r.ImageOffset, -1, octets(content[r.ImageOffset:]))
				require.NoError(t, err)
			}
			assert.True(t, bytes.Equal(content, b.read(key("tool"))))
			assert.ElementsMatch(t, []string{".firstlight/records/alpha/beta/tool", "alpha/beta/tool"}, b.names(""))
		})
	}
}

type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}
