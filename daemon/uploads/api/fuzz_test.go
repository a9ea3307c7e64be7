package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/api/access"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
)

type everybody struct{}

func (everybody) Authenticate(context.Context, *http.Request) (access.User, error) {
	return access.User{Name: "u"}, nil
}

func (everybody) Authorize(context.Context, access.User, access.Request) (bool, error) {
	return true, nil
}

// fuzzAgent serves an agent's handler over a folder.
func fuzzAgent(f *testing.F) (url string) {
	s := &blobs.Folder{Dir: f.TempDir()}
	log := slog.New(slog.DiscardHandler)
	c := blobs.Config{Backend: s, Scratch: f.TempDir(), Log: log}
	a, err := New(Config{Blobs: c, Authenticator: everybody{}, Authorizer: everybody{}, Log: log})
	require.NoError(f, err)
	d, err := blobs.Open(f.Context(), c)
	require.NoError(f, err)
	a.blobs.Store(d)
	server := httptest.NewServer(a.handler)
	f.Cleanup(server.Close)
	return server.URL + artifact.Base + "/alpha/beta/"
}

// send returns the status; a failure must be a problem, and never the agent's own.
func send(t *testing.T, method, url string, body io.Reader, header map[string]string) int {
	r, err := http.NewRequest(method, url, body)
	if err != nil {
		t.Skip("no request can be made of it")
	}
	for k, v := range header {
		r.Header.Set(k, v)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Skip("it is not sent: ", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NotEqual(t, http.StatusInternalServerError, response.StatusCode, "%s", text)
	if response.StatusCode >= 400 {
		if response.Header.Get("Content-Type") == "text/plain; charset=utf-8" {
			return response.StatusCode // net/http itself: no HTTP
		}
		var p artifact.Problem
		require.NoError(t, json.Unmarshal(text, &p), "%s", text)
		assert.Equal(t, response.StatusCode, p.Status)
		assert.NotEmpty(t, p.Detail)
	}
	return response.StatusCode
}

func FuzzMetadata(f *testing.F) {
	const good = `{"owner":"alpha","cluster_name":"beta","type":"t","image_name":"n","image_offset":0,"image_length":5,"upload_complete":false,"description":{"image_records":[{"a":"b"}]},"sha256":""}`
	f.Add([]byte(good))
	f.Add([]byte(strings.Replace(good, "5", "1e3", 1)))
	f.Add([]byte(strings.Replace(good, `"n"`, `"..\/x\u0000"`, 1)))
	f.Add([]byte(`[]`))
	f.Add([]byte(`{"owner":{}}`))
	f.Add([]byte(strings.Repeat("[", 20000)))
	k := artifact.Key{Collection: artifact.Binary, Owner: "alpha", Cluster: "beta"}
	f.Fuzz(func(t *testing.T, metadata []byte) {
		full, r, err := form{metadata: metadata, file: true}.parseMetadata(k, "POST")
		if err != nil {
			p := problemOf(err)
			assert.Contains(t, []int{400, 413, 422}, p.Status, "%v", err)
			return
		}
		assert.NoError(t, full.Check())
		assert.Equal(t, full.Name, r.ImageName)
		assert.True(t, r.ImageLength > 0 && r.ImageLength <= artifact.MaxLength)
		assert.True(t, r.SHA256 == "" || len(r.SHA256) == 64)
	})
}

func FuzzForm(f *testing.F) {
	f.Add("multipart/form-data; boundary=b", []byte("--b\r\nContent-Disposition: form-data; name=\"metadata\"\r\n\r\n{}\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nx\r\n--b--\r\n"))
	f.Add("multipart/form-data; boundary=b", []byte("--b\r\n\r\n--b--"))
	f.Add("multipart/form-data", []byte("x"))
	f.Add("multipart/mixed; boundary=\"\"", []byte(""))
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		r := httptest.NewRequest("POST", "/", bytes.NewReader(body))
		r.Header.Set("Content-Type", kind)
		found, err := readForm(httptest.NewRecorder(), r, time.Minute)
		if err != nil {
			assert.Contains(t, []int{413, 422}, problemOf(err).Status, "%v", err)
			return
		}
		media, _, err := mime.ParseMediaType(kind)
		assert.True(t, err == nil && strings.HasPrefix(media, "multipart/"), "%q", kind)
		assert.LessOrEqual(t, len(found.metadata), artifact.MaxMetadata)
	})
}

// Whatever the headers of a piece say, what is stored is what was sent, in order.
func FuzzPatch(f *testing.F) {
	url := fuzzAgent(f)
	f.Add("0", "", []byte("hello"), true)
	f.Add("5", "bytes", []byte(""), false)
	f.Add("-1", "gzip", []byte("x"), true)
	f.Add("9223372036854775808", "", []byte("x"), false)
	f.Add("0x0", "", []byte("0123456789abcdef0123456789abcdef!"), true)
	f.Add("00", "", bytes.Repeat([]byte("y"), 33), false)
	n := 0
	f.Fuzz(func(t *testing.T, offset, encoding string, body []byte, announced bool) {
		n++
		name := "n" + strconv.Itoa(n)
		metadata := `{"owner":"alpha","image_name":"` + name + `","image_length":32}`
		announce := "--b\r\nContent-Disposition: form-data; name=\"metadata\"\r\n\r\n" + metadata + "\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nx\r\n--b--\r\n"
		require.Equal(t, http.StatusCreated, send(t, "POST", url+"binary_images", strings.NewReader(announce), map[string]string{"Content-Type": "multipart/form-data; boundary=b"}))
		defer send(t, "DELETE", url+"binary_images/"+name, nil, nil)
		var from io.Reader = bytes.NewReader(body)
		if !announced {
			from = struct{ io.Reader }{from}
		}
		status := send(t, "PATCH", url+"binary_images/"+name, from, map[string]string{artifact.HeaderOffset: offset, "Content-Encoding": encoding})
		fits := len(body) <= 32
		zero, err := strconv.ParseUint(offset, 10, 63)
		assert.Equal(t, fits && err == nil && zero == 0, status == http.StatusNoContent, "%d", status)
	})
}

func FuzzRange(f *testing.F) {
	url := fuzzAgent(f)
	const content = "0123456789abcdef"
	announce := "--b\r\nContent-Disposition: form-data; name=\"metadata\"\r\n\r\n" + `{"owner":"alpha","image_name":"n","image_length":16}` + "\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nx\r\n--b--\r\n"
	for _, range_ := range []string{"bytes=0-0", "bytes=-1", "bytes=15-", "bytes=16-", "bytes=5-1", "bytes=0-1,2-3", "bytes=9223372036854775807-", "bytes=--1", "lines=1-2", ""} {
		f.Add(range_, `"x"`, "limit=1")
	}
	sent := false
	f.Fuzz(func(t *testing.T, range_, match, query string) {
		if !sent {
			sent = true
			require.Equal(t, http.StatusCreated, send(t, "POST", url+"binary_images", strings.NewReader(announce), map[string]string{"Content-Type": "multipart/form-data; boundary=b"}))
			require.Equal(t, http.StatusNoContent, send(t, "PATCH", url+"binary_images/n", strings.NewReader(content), map[string]string{artifact.HeaderOffset: "0"}))
		}
		status := send(t, "GET", url+"binary_images/n/content", nil, map[string]string{"Range": range_, "If-None-Match": match, "If-Range": match})
		assert.Contains(t, []int{200, 206, 304, 400, 412, 416}, status)
		status = send(t, "GET", url+"binary_images?"+query, nil, nil)
		assert.Contains(t, []int{200, 400}, status)
	})
}
