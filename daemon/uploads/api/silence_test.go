package api_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/uploads/api"
)

// A client that falls silent is told so, keeps what it sent and makes room for another.
func TestSilentClient(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for silence to be noticed, which takes seconds: leave out -short")
	}
	l := newLab(t, inFolder(t), func(c *api.Config) { c.Silence = 5 * time.Second })
	path := base + "binary_images/silent"
	require.Equal(t, http.StatusCreated, l.announce("binary_images", sample("silent", 100, nil)).status)
	r, w := io.Pipe()
	defer w.Close()
	go func() { _, _ = w.Write([]byte("ten octets")) }()
	got := l.do("PATCH", path, r, "Upload-Offset", "0")
	assert.Equal(t, http.StatusRequestTimeout, got.status, got.body)
	assert.Equal(t, "10", got.header.Get("Upload-Offset"))
	assert.Equal(t, 10, l.offset(path))
	for head, status := range map[string]int{
		"PATCH " + path + " HTTP/1.1\r\nUpload-Offset: 10":                                         408,
		"PATCH " + path + " HTTP/1.1\r\nUpload-Offset: 11":                                         409, // refused before a body is asked for
		"POST " + base + "binary_images HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b": 408,
	} {
		u, err := url.Parse(l.url)
		require.NoError(t, err)
		c, err := tls.Dial("tcp", u.Host, l.client.Transport.(*http.Transport).TLSClientConfig)
		require.NoError(t, err)
		_, err = fmt.Fprintf(c, "%s\r\nHost: %s\r\nAuthorization: Bearer admin\r\nContent-Length: 50\r\n\r\n--b", head, u.Host)
		require.NoError(t, err)
		answer, err := io.ReadAll(c)
		require.NoError(t, err, "%s: the agent hangs up", head)
		assert.Contains(t, string(answer), fmt.Sprintf("HTTP/1.1 %d ", status), head)
		require.NoError(t, c.Close())
	}
}

// A client that hangs up while the store works does not stop what it sent.
func TestContextOfTheClientDoesNotStopSettling(t *testing.T) {
	reached, goOn := make(chan struct{}), make(chan struct{})
	slow := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/fragments/") {
				close(reached)
				<-goOn
			}
			next.ServeHTTP(w, r)
		})
	}
	l := newLab(t, inMemory(t, slow), nil)
	path := base + "binary_images/hasty"
	require.Equal(t, http.StatusCreated, l.announce("binary_images", sample("hasty", 1000, nil)).status)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "PATCH", l.url+path, bytes.NewReader(noise(700, 1)))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer admin")
	r.Header.Set("Upload-Offset", "0")
	go func() {
		<-reached
		cancel()
	}()
	_, err = l.client.Do(r)
	require.ErrorIs(t, err, context.Canceled)
	close(goOn) // the agent may see that the client is gone, or not yet
	assert.Equal(t, 700, l.offset(path))
}
