package blobs_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
	"firstlight.dev/firstlight/daemon/uploads/blobs/s3test"
)

// On a full disk a removal is what makes room: it needs none.
func TestRemovalFromAFullStore(t *testing.T) {
	var full, stuck atomic.Bool
	config := s3test.StartInMemory(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			record := strings.Contains(r.URL.Path, "/records/")
			switch {
			case full.Load() && r.Method == "PUT":
				w.Header().Set("Content-Type", "application/xml")
				w.WriteHeader(http.StatusInsufficientStorage)
				_, _ = w.Write([]byte(`<Error><Code>InsufficientStorage</Code></Error>`))
			case stuck.Load() && record && r.Method == "DELETE":
				w.WriteHeader(http.StatusInternalServerError)
			default:
				next.ServeHTTP(w, r)
			}
		})
	})
	config.RetryTimeout = 50 * time.Millisecond
	b := newFixture(t, server(t, config), nil)
	b.bring(key("whole"), image(100))
	_, err := b.Create(t.Context(), key("begun"), record(key("begun"), 11<<20))
	require.NoError(t, err)
	_, err = b.Append(t.Context(), key("begun"), 0, 6<<20, octets(image(6<<20)))
	require.NoError(t, err)
	full.Store(true)
	require.NoError(t, b.Remove(t.Context(), key("begun")))
	assert.Empty(t, b.pending())
	assert.Len(t, b.names(""), 2, "the other one is there")

	// Cut off after the bytes: none of them rises again, and it is removed again.
	stuck.Store(true)
	assert.Equal(t, blobs.Down, kind(t, b.Remove(t.Context(), key("whole"))))
	full.Store(false)
	stuck.Store(false)
	b.open()
	r, err := b.Get(key("whole"))
	require.NoError(t, err)
	assert.False(t, r.Complete)
	assert.Zero(t, r.ImageOffset)
	require.NoError(t, b.Remove(t.Context(), key("whole")))
	assert.Empty(t, b.names(""))
}

// One record that cannot be read is one artifact's matter.
func TestRecordThatCannotBeReadClosesNothing(t *testing.T) {
	var broken atomic.Bool
	config := s3test.StartInMemory(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if broken.Load() && r.Method == "GET" && strings.HasSuffix(r.URL.Path, "/records/alpha/beta/sector") {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	config.RetryTimeout = 50 * time.Millisecond
	b := newFixture(t, server(t, config), nil)
	for _, name := range []string{"whole", "fine"} {
		b.bring(key(name), image(100))
	}
	for _, name := range []string{"sector", "bloated"} {
		_, err := b.Create(t.Context(), key(name), record(key(name), 11<<20))
		require.NoError(t, err)
	}
	for _, name := range []string{"whole", "bloated"} {
		require.NoError(t, b.config.Backend.Put(t.Context(), "binary", ".firstlight/records/alpha/beta/"+name, make([]byte, 1<<20+1)))
	}
	broken.Store(true)
	b.open()
	for _, name := range []string{"fine", "whole"} {
		assert.Equal(t, image(100), b.read(key(name)), name)
	}
	for _, name := range []string{"sector", "bloated"} {
		r, err := b.Get(key(name))
		require.NoError(t, err)
		assert.Contains(t, r.Damaged, "remove it or replace it")
		_, err = b.Create(t.Context(), key(name), record(key(name), 5))
		assert.Equal(t, blobs.Exists, kind(t, err))
		_, err = b.Append(t.Context(), key(name), 0, 0, octets(nil))
		assert.Equal(t, blobs.Damaged, kind(t, err))
		_, _, err = b.Content(t.Context(), key(name))
		assert.Equal(t, blobs.Damaged, kind(t, err))
	}
	b.Sweep(t.Context())
	require.NoError(t, b.Remove(t.Context(), key("sector")))
	_, err := b.Replace(t.Context(), key("bloated"), record(key("bloated"), 100))
	require.NoError(t, err)
	_, err = b.Append(t.Context(), key("bloated"), 0, 100, octets(image(100)))
	require.NoError(t, err)
	b.open()
	page, _ := b.List(artifact.Binary, "alpha", "beta", "", 10)
	require.Len(t, page, 3)
	for _, r := range page {
		assert.True(t, r.Complete, r.ImageName)
		assert.Empty(t, r.Damaged, r.ImageName)
	}
}

func TestRecordThatCouldNotBeReadIsNotWritten(t *testing.T) {
	backends(t, func(t *testing.T, s blobs.Backend) {
		b := newFixture(t, s, nil)
		r := b.bring(key("tool"), image(100))
		err := b.SetServed(t.Context(), key("tool"), r.SHA256, nil, strings.Repeat("x", 1<<20))
		assert.Equal(t, blobs.TooLarge, kind(t, err))
		b.open()
		_, err = b.Get(key("tool"))
		require.NoError(t, err)
	})
}

// What a client is told of a failure, in a sentence; what is not the store's silence is ours.
func TestWhatTheStoreDidNotDoIsSaid(t *testing.T) {
	var status atomic.Int64
	config := s3test.StartInMemory(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n := int(status.Load()); n != 0 {
				w.WriteHeader(n)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	config.RetryTimeout = 50 * time.Millisecond
	b := newFixture(t, server(t, config), nil)
	_, err := b.Create(t.Context(), key("tool"), record(key("tool"), 100))
	require.NoError(t, err)
	for what, do := range map[string]func() error{
		"other could not be announced": func() error {
			_, err := b.Create(t.Context(), key("other"), record(key("other"), 100))
			return err
		},
		"tool could not be described": func() error {
			_, err := b.Replace(t.Context(), key("tool"), record(key("tool"), 100))
			return err
		},
		"tool could not be replaced": func() error {
			_, err := b.Replace(t.Context(), key("tool"), record(key("tool"), 101))
			return err
		},
		"tool could not be removed": func() error { return b.Remove(t.Context(), key("tool")) },
		"tool could not be stored": func() error {
			_, err := b.Append(t.Context(), key("tool"), 0, 10, octets(image(10)))
			return err
		},
	} {
		var e *blobs.Error
		status.Store(http.StatusServiceUnavailable)
		if err := do(); assert.ErrorAs(t, err, &e, what) {
			assert.Equal(t, blobs.Down, e.Kind)
			assert.Equal(t, "the store does not answer: "+what+"; try again", e.Text)
		}
		status.Store(http.StatusForbidden)
		err := do()
		assert.ErrorContains(t, err, what+": ")
		assert.False(t, errors.As(err, &e), "%v is nothing that a client could do something about", err)
	}
}
