package store

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A file, a piece of one and what is no file all arrive as they are.
func TestSocketTakesFilesAndOthers(t *testing.T) {
	data := make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{3}).Read(data) // never fails
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	open := func(at int64) *os.File {
		f, err := os.Open(path)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		_, err = f.Seek(at, io.SeekStart)
		require.NoError(t, err)
		return f
	}
	for _, c := range []struct {
		name string
		from io.Reader
		want []byte
		file bool
	}{
		{"all of a file", &io.LimitedReader{R: open(0), N: int64(len(data))}, data, true},
		{"a file from somewhere on", &io.LimitedReader{R: open(1000), N: int64(len(data) - 1000)}, data[1000:], true},
		{"a piece of a file", &io.LimitedReader{R: open(1000), N: 1 << 20}, data[1000 : 1000+1<<20], false},
		{"less than is said", &io.LimitedReader{R: open(5), N: int64(len(data))}, data[5:], false},
		{"no file", &io.LimitedReader{R: bytes.NewReader(data), N: 100}, data[:100], false},
		{"a file without a limit", open(0), data, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if l, ok := c.from.(*io.LimitedReader); ok {
				assert.Equal(t, c.file, allOfFile(l))
			}
			socketPath := filepath.Join(t.TempDir(), "s")
			l, err := net.Listen("unix", socketPath)
			require.NoError(t, err)
			defer l.Close()
			got := make(chan []byte)
			go func() {
				c, err := l.Accept()
				if err != nil {
					close(got)
					return
				}
				all, _ := io.ReadAll(c) // compared below
				got <- all
			}()
			conn, err := dialSocket(socketPath)(t.Context(), "", "")
			require.NoError(t, err)
			n, err := conn.(io.ReaderFrom).ReadFrom(c.from)
			require.NoError(t, err)
			require.NoError(t, conn.Close())
			assert.Equal(t, int64(len(c.want)), n)
			assert.True(t, bytes.Equal(c.want, <-got))
		})
	}
}

// A store behind a socket is asked for what any other is; one that is not there is down.
func TestStoreBehindASocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s, err := New(Config{Endpoint: "unix:" + path, AccessKey: "a", SecretKey: "b", Patience: 1})
	require.NoError(t, err)
	_, err = s.Stat(t.Context(), "binary", "x")
	require.ErrorIs(t, err, ErrDown)
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/binary/x", r.URL.Path)
		assert.True(t, strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 "))
		w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
		w.Header().Set("Content-Length", "7")
	})}
	go func() { _ = server.Serve(l) }() // until Close
	defer server.Close()
	o, err := s.Stat(t.Context(), "binary", "x")
	require.NoError(t, err)
	assert.Equal(t, int64(7), o.Size)
}
