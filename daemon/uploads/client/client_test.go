package client_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/client"
)

// flaky stands between a client and what serves; it cuts transfers. The client with the real
// agent is tested in cmd/firstlightd.
type flaky struct {
	mu     sync.Mutex
	record *artifact.Metadata
	bytes  []byte
	cuts   []int // octets after which the next transfers are cut
	asked  []string
	status int // if not 0, of every PATCH
}

func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, r.Method)
	cut := -1
	if r.Method == http.MethodPatch || strings.HasSuffix(r.URL.Path, "/content") {
		if len(f.cuts) > 0 {
			cut, f.cuts = f.cuts[0], f.cuts[1:]
		}
	}
	switch {
	case r.Method == http.MethodPost || r.Method == http.MethodPut:
		var wanted artifact.Metadata
		_ = r.ParseMultipartForm(1 << 20)
		decode(r.FormValue("metadata"), &wanted)
		f.record, f.bytes = &wanted, nil
		reply(w, 201, wanted)
	case f.record == nil:
		reply(w, 404, artifact.Problem{Status: 404, Detail: "there is none"})
	case r.Method == http.MethodPatch && f.status != 0:
		reply(w, f.status, artifact.Problem{Status: f.status, Detail: "refused"})
	case r.Method == http.MethodPatch:
		if at, _ := strconv.Atoi(r.Header.Get("Upload-Offset")); at != len(f.bytes) {
			reply(w, 409, artifact.Problem{Status: 409, Detail: "Expected Offset"})
			return
		}
		limit := int64(cut)
		if cut < 0 {
			limit = 1 << 40
		}
		data, _ := io.ReadAll(io.LimitReader(r.Body, limit))
		f.bytes = append(f.bytes, data...)
		if cut >= 0 {
			panic(http.ErrAbortHandler)
		}
		sum := sha256.Sum256(f.bytes)
		f.record.Complete, f.record.SHA256 = true, hex.EncodeToString(sum[:])
		w.WriteHeader(http.StatusNoContent)
	case strings.HasSuffix(r.URL.Path, "/content"):
		from, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-"))
		w.Header().Set("Content-Length", strconv.Itoa(len(f.bytes)-from))
		w.WriteHeader(http.StatusPartialContent)
		if cut >= 0 {
			_, _ = w.Write(f.bytes[from:min(from+cut, len(f.bytes))])
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(f.bytes[from:])
	default:
		now := *f.record
		now.ImageOffset = int64(len(f.bytes))
		reply(w, 200, now)
	}
}

func decode(text string, into any) { _ = json.Unmarshal([]byte(text), into) } // the client's own

func reply(w http.ResponseWriter, status int, what any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(what) // to a client that may be gone
}

var key = artifact.Key{Collection: artifact.Binary, Owner: "alpha", Cluster: "beta", Name: "tool"}

func silent(string, int64, int64) {}

func newClient(t *testing.T, f *flaky) client.Client {
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return client.Client{URL: s.URL, HTTP: s.Client(), StallTimeout: 20 * time.Second}
}

func file(t *testing.T, n int) (string, []byte) {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7 >> 3)
	}
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, b, 0o644))
	return path, b
}

func TestPushGoesOnAfterEveryCut(t *testing.T) {
	f := &flaky{cuts: []int{0, 100000, 1, 300000}}
	path, content := file(t, 1<<20)
	r, err := newClient(t, f).Push(t.Context(), key, path, artifact.Metadata{Type: "t"}, false, silent)
	require.NoError(t, err)
	assert.True(t, r.Complete)
	assert.Equal(t, content, f.bytes)
	assert.Equal(t, "t", f.record.Type)
}

func TestPushOfWhatIsThere(t *testing.T) {
	f := &flaky{}
	c := newClient(t, f)
	path, content := file(t, 1000)
	_, err := c.Push(t.Context(), key, path, artifact.Metadata{}, false, silent)
	require.NoError(t, err)
	f.asked = nil
	_, err = c.Push(t.Context(), key, path, artifact.Metadata{}, false, silent)
	require.NoError(t, err)
	assert.Equal(t, []string{"GET"}, f.asked, "nothing is sent again")
	other, changed := file(t, 999)
	_, err = c.Push(t.Context(), key, other, artifact.Metadata{}, false, silent)
	assert.ErrorContains(t, err, "there is another tool already")
	assert.Equal(t, content, f.bytes)
	_, err = c.Push(t.Context(), key, other, artifact.Metadata{}, true, silent)
	require.NoError(t, err)
	assert.Equal(t, changed, f.bytes)
}

func TestPushGivesUpWhatIsRefused(t *testing.T) {
	for _, status := range []int{400, 401, 403, 413, 422, 507} {
		f := &flaky{status: status}
		path, _ := file(t, 10)
		_, err := newClient(t, f).Push(t.Context(), key, path, artifact.Metadata{}, false, silent)
		var p artifact.Problem
		require.ErrorAs(t, err, &p)
		assert.Equal(t, status, p.Status)
		assert.Equal(t, []string{"GET", "POST", "PATCH"}, f.asked, "it is not tried again")
	}
}

func TestPushGivesUpWhenNothingMoves(t *testing.T) {
	f := &flaky{status: 503}
	c := newClient(t, f)
	c.StallTimeout = 300 * time.Millisecond
	path, _ := file(t, 10)
	_, err := c.Push(t.Context(), key, path, artifact.Metadata{}, false, silent)
	assert.ErrorContains(t, err, "refused")
	assert.Greater(t, len(f.asked), 4)
}

func TestFetchGoesOnAfterEveryCut(t *testing.T) {
	f := &flaky{}
	c := newClient(t, f)
	path, content := file(t, 1<<20)
	_, err := c.Push(t.Context(), key, path, artifact.Metadata{}, false, silent)
	require.NoError(t, err)
	f.cuts = []int{200000, 0, 1, 400000}
	out := filepath.Join(t.TempDir(), "out")
	_, err = c.Fetch(t.Context(), key, out, silent)
	require.NoError(t, err)
	got, err := os.ReadFile(out)
	require.NoError(t, err)
	assert.Equal(t, content, got)
	assertNoPart(t, out)
}

func TestFetchThatIsNotWhatItShouldBe(t *testing.T) {
	f := &flaky{}
	c := newClient(t, f)
	path, _ := file(t, 1000)
	_, err := c.Push(t.Context(), key, path, artifact.Metadata{}, false, silent)
	require.NoError(t, err)
	f.bytes[500]++
	out := filepath.Join(t.TempDir(), "out")
	_, err = c.Fetch(t.Context(), key, out, silent)
	assert.ErrorContains(t, err, "what was fetched has sha256")
	assert.NoFileExists(t, out)
	assertNoPart(t, out) // and is not gone on with
}

// A target that cannot be written is no reason to try again.
func TestFetchWithoutRoomHere(t *testing.T) {
	f := &flaky{}
	c := newClient(t, f)
	path, _ := file(t, 1000)
	have, err := c.Push(t.Context(), key, path, artifact.Metadata{}, false, silent)
	require.NoError(t, err)
	f.asked = nil
	dir := t.TempDir()
	require.NoError(t, os.Symlink("/dev/full", client.PartialName(filepath.Join(dir, "out"), have)))
	_, err = c.Fetch(t.Context(), key, filepath.Join(dir, "out"), silent)
	assert.Error(t, err)
	assert.LessOrEqual(t, len(f.asked), 2)
}

func TestOtherServersAreToldByTheirStatus(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprint(w, "<html>")
	}))
	defer s.Close()
	_, err := client.Client{URL: s.URL, HTTP: s.Client()}.Metadata(t.Context(), key)
	assert.EqualError(t, err, "the server answered 418 I'm a teapot")
	s.Close()
	_, err = client.Client{URL: s.URL, HTTP: s.Client()}.List(t.Context(), key.Collection, "a", "b")
	assert.ErrorContains(t, err, "reach the appliance")
}

func assertNoPart(t *testing.T, path string) {
	t.Helper()
	parts, err := filepath.Glob(path + "*.part")
	require.NoError(t, err)
	assert.Empty(t, parts)
}

// What lies in the folder is the user's.
func TestFetchLeavesOtherFilesAlone(t *testing.T) {
	f := &flaky{}
	c := newClient(t, f)
	path, content := file(t, 1000)
	_, err := c.Push(t.Context(), key, path, artifact.Metadata{}, false, silent)
	require.NoError(t, err)
	dir := t.TempDir()
	out, part := filepath.Join(dir, "out"), filepath.Join(dir, "out.part")
	for name, text := range map[string]string{out: "a letter", part: "part of a letter"} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	holds := func(name, text string) {
		t.Helper()
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		assert.Equal(t, text, string(got))
	}
	_, err = c.Fetch(t.Context(), key, out, silent)
	assert.ErrorContains(t, err, "out is there and holds something else")
	holds(out, "a letter")
	_, err = c.Fetch(t.Context(), key, dir, silent)
	assert.ErrorContains(t, err, "is no file")

	c.Overwrite = true
	_, err = c.Fetch(t.Context(), key, out, silent)
	require.NoError(t, err)
	holds(out, string(content))
	holds(part, "part of a letter")

	c.Overwrite, f.asked = false, nil
	_, err = c.Fetch(t.Context(), key, out, silent)
	require.NoError(t, err, "it is there")
	assert.Len(t, f.asked, 1, "and is not fetched again")
}
