package api_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/uploads/api"
	"firstlight.dev/firstlight/daemon/uploads/api/access"
	"firstlight.dev/firstlight/daemon/uploads/blobs/s3test"
)

func TestWhoMayWhat(t *testing.T) {
	l := newLab(t, inFolder(t), nil)
	require.Equal(t, http.StatusCreated, l.announce("binary_images", sample("tool", 10, nil)).status)
	l.token = "reader"
	assert.Equal(t, http.StatusOK, l.do("GET", base+"binary_images/tool", nil).status)
	assert.Equal(t, http.StatusOK, l.do("GET", base+"binary_images", nil).status)
	refused := l.patch(base+"binary_images/tool", 0, []byte("ten octets"))
	assert.Equal(t, http.StatusForbidden, refused.status)
	assert.Contains(t, refused.problem(t).Detail, "reader may not patch binary_images/tool in alpha")
	assert.Equal(t, http.StatusForbidden, l.announce("binary_images", sample("other", 10, nil)).status)
	assert.Equal(t, http.StatusForbidden, l.do("DELETE", base+"binary_images/none", nil).status, "nobody is told what exists")
	assert.Equal(t, http.StatusForbidden, l.do("GET", artifact.Base+"/delta/beta/binary_images", nil).status, "another's")
	assert.Equal(t, http.StatusForbidden, l.do("GET", "/metrics", nil).status)
	l.token = "outage"
	got := l.do("GET", base+"binary_images/tool", nil)
	assert.Equal(t, http.StatusServiceUnavailable, got.status, "not knowing is neither yes nor no")
	assert.NotEmpty(t, got.header.Get("Retry-After"))
	l.token = "admin"
	metrics := l.do("GET", "/metrics", nil)
	assert.Contains(t, metrics.body, `firstlight_artifacts{collection="binary_images"} 1`)
	assert.Contains(t, metrics.body, `firstlight_artifact_requests_total{method="PATCH",status="403"} 1`)
}

func TestTLS(t *testing.T) {
	l := newLab(t, inFolder(t), func(c *api.Config) { c.Authenticator = access.Chain{certificatesFirst{}, people{}} })
	l.token = ""
	pki := filepath.Dir(l.config.TLS.Cert)
	authority, err := ca.Open(pki, time.Now)
	require.NoError(t, err)
	stranger, err := ca.Open(t.TempDir(), time.Now)
	require.NoError(t, err)
	ask := func(by *ca.Authority, name string) (int, error) {
		c := &tls.Config{RootCAs: authority.Pool()}
		if by != nil {
			pair, _, err := by.Issue(name, ca.Names{Of: name, Client: true})
			require.NoError(t, err)
			own, err := tls.X509KeyPair(pair.Cert, pair.Key)
			require.NoError(t, err)
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil } // whomever the server trusts
		}
		client := http.Client{Transport: &http.Transport{TLSClientConfig: c}}
		defer client.CloseIdleConnections()
		r, err := client.Get(l.url + base + "os_images")
		if err != nil {
			return 0, err
		}
		r.Body.Close()
		return r.StatusCode, nil
	}
	status, err := ask(authority, "admin")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
	status, err = ask(authority, "nobody")
	require.NoError(t, err)
	assert.Equal(t, http.StatusForbidden, status)
	status, err = ask(nil, "")
	require.NoError(t, err)
	assert.Equal(t, http.StatusUnauthorized, status)
	_, err = ask(stranger, "admin")
	assert.Error(t, err, "another authority's certificates are refused before any request")

	plain, err := http.Get(strings.Replace(l.url, "https", "http", 1) + base + "os_images")
	require.NoError(t, err)
	plain.Body.Close()
	assert.Equal(t, http.StatusBadRequest, plain.StatusCode)
	_, err = tls.Dial("tcp", strings.TrimPrefix(l.url, "https://"), &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	assert.ErrorContains(t, err, "protocol version")

	// A new certificate is served without a restart.
	serial := func() string {
		c, err := tls.Dial("tcp", strings.TrimPrefix(l.url, "https://"), &tls.Config{RootCAs: authority.Pool()})
		require.NoError(t, err)
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	before := serial()
	require.NoError(t, os.Remove(l.config.TLS.Cert))
	_, fresh, err := authority.Issue("artifacts", ca.Names{Of: "artifacts", Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
	require.NoError(t, err)
	require.True(t, fresh)
	assert.Eventually(t, func() bool { return serial() != before }, time.Minute, 100*time.Millisecond)
}

// filling is a store that has no room for some requests while it is set.
func filling(full *atomic.Bool, refused func(*http.Request) bool) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if full.Load() && refused(r) {
				w.Header().Set("Content-Type", "application/xml")
				w.WriteHeader(http.StatusInsufficientStorage)
				_, _ = w.Write([]byte(`<Error><Code>InsufficientStorage</Code><Message>No space left on device.</Message></Error>`))
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// A store that must copy the parts may be full when it makes them one: all of it stays, and the upload is
// completed by a request without octets.
func TestStoreIsFullWhileItCompletes(t *testing.T) {
	var full atomic.Bool
	full.Store(true)
	completes := func(r *http.Request) bool { return r.Method == http.MethodPost && r.URL.Query().Has("uploadId") }
	l := newLab(t, inMemory(t, filling(&full, completes)), smallParts)
	image, path := noise(12<<20, 60), base+"binary_images/big"
	require.Equal(t, http.StatusCreated, l.announce("binary_images", sample("big", len(image), nil)).status)
	got := l.patch(path, 0, image)
	assert.Equal(t, http.StatusInsufficientStorage, got.status, got.body)
	assert.Equal(t, fmt.Sprint(len(image)), got.header.Get("Upload-Offset"), "all of it is there")
	assert.False(t, l.do("GET", path, nil).record(t).Complete)
	full.Store(false)
	got = l.patch(path, len(image), nil)
	assert.Equal(t, http.StatusNoContent, got.status, got.body)
	assert.Equal(t, digest(image), l.do("GET", path, nil).record(t).SHA256)
	assert.Equal(t, digest(image), digest([]byte(l.do("GET", path+"/content", nil).body)))
}

func TestFullStore(t *testing.T) {
	var full atomic.Bool
	l := newLab(t, inMemory(t, filling(&full, func(r *http.Request) bool { return r.Method == http.MethodPut })), smallParts)
	image, path := noise(12<<20, 59), base+"binary_images/big"
	require.Equal(t, http.StatusCreated, l.announce("binary_images", sample("big", len(image), nil)).status)
	require.Equal(t, http.StatusNoContent, l.patch(path, 0, image[:6<<20]).status)
	full.Store(true)
	got := l.patch(path, 6<<20, image[6<<20:])
	assert.Equal(t, http.StatusInsufficientStorage, got.status, got.body)
	assert.Equal(t, fmt.Sprint(6<<20), got.header.Get("Upload-Offset"))
	assert.Equal(t, http.StatusInsufficientStorage, l.announce("binary_images", sample("more", 10, nil)).status)
	assert.Equal(t, http.StatusNotFound, l.do("GET", base+"binary_images/more", nil).status, "what could not be written does not exist")
	full.Store(false)
	assert.Equal(t, 6<<20, l.offset(path))
	assert.Equal(t, http.StatusNoContent, l.patch(path, 6<<20, image[6<<20:]).status)
	assert.True(t, bytes.Equal(image, []byte(l.do("GET", path+"/content", nil).body)))
}

// The same with a disk that is full indeed.
func TestFullDisk(t *testing.T) {
	small := s3test.SmallDisk(t, "32m")
	c := place{Dir: filepath.Join(small, "store")}
	ballast := filepath.Join(small, "ballast")
	fill := func(n int) { require.NoError(t, os.WriteFile(ballast, make([]byte, n), 0o644)) }
	l := newLab(t, c, smallParts)
	image, path := noise(14<<20, 61), base+"container_images/big"
	require.Equal(t, http.StatusCreated, l.announce("container_images", sample("big", len(image), nil)).status)
	fill(24 << 20)
	got := l.patch(path, 0, image)
	assert.Equal(t, http.StatusInsufficientStorage, got.status, got.body)
	at := l.offset(path)
	t.Logf("full while parts came: %s; it goes on at %d", got.body, at)
	assert.Equal(t, 5<<20, at, "the part that had room is kept")
	fill(8 << 20) // room for all of it once, not for a copy
	got = l.patch(path, at, image[at:])
	assert.Equal(t, http.StatusNoContent, got.status, got.body)
	assert.Equal(t, digest(image), l.do("GET", path, nil).record(t).SHA256)
	assert.Equal(t, digest(image), digest([]byte(l.do("GET", path+"/content", nil).body)))
}

// The last block is taken: what is removed makes room nevertheless, whole or begun.
func TestFullDiskIsEmptied(t *testing.T) {
	small := s3test.SmallDisk(t, "32m")
	c := place{Dir: filepath.Join(small, "store")}
	l := newLab(t, c, smallParts)
	for name, n := range map[string]int{"whole": 6 << 20, "begun": 11 << 20} {
		require.Equal(t, http.StatusCreated, l.announce("container_images", sample(name, n, nil)).status)
		require.Equal(t, http.StatusNoContent, l.patch(base+"container_images/"+name, 0, noise(6<<20, 63)).status)
	}
	ballast, err := os.Create(filepath.Join(small, "ballast"))
	require.NoError(t, err)
	defer ballast.Close()
	for err == nil {
		_, err = ballast.Write(make([]byte, 4096))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	got := l.announce("container_images", sample("more", 5, nil))
	require.Equal(t, http.StatusInsufficientStorage, got.status, got.body)
	room := func() int64 {
		var s syscall.Statfs_t
		require.NoError(t, syscall.Statfs(small, &s))
		return int64(s.Bavail) * s.Bsize
	}
	require.Less(t, room(), int64(4096))
	for i, name := range []string{"begun", "whole"} {
		got := l.do("DELETE", base+"container_images/"+name, nil)
		assert.Equal(t, http.StatusNoContent, got.status, got.body)
		assert.GreaterOrEqual(t, room(), int64(i+1)*5<<20)
	}
	l.restart()
	for _, name := range []string{"begun", "whole"} {
		assert.Equal(t, http.StatusNotFound, l.do("GET", base+"container_images/"+name, nil).status)
	}
	assertOnly(t, c, "container")
}

// A store that refuses for a reason of its own is nothing that a client could wait for; who runs the
// appliance finds the reason in the log.
func TestWhatIsUnknownIsOurs(t *testing.T) {
	var refuses atomic.Bool
	var log bytes.Buffer
	l := newLab(t, inMemory(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if refuses.Load() {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			next.ServeHTTP(w, r)
		})
	}), func(c *api.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	refuses.Store(true)
	got := l.announce("binary_images", sample("tool", 5, nil))
	assert.Equal(t, http.StatusInternalServerError, got.status)
	assert.Equal(t, "the agent failed; its log says how", got.problem(t).Detail)
	l.stop()
	assert.Contains(t, log.String(), "tool could not be announced: store .firstlight/records/alpha/beta/tool: ")
}

func TestNoRoomIsSaidBeforeTheFirstOctet(t *testing.T) {
	l := newLab(t, inFolder(t), func(c *api.Config) { c.Blobs.Local = true })
	got := l.announce("os_images", sample("enormous", 4<<40, nil))
	assert.Equal(t, http.StatusInsufficientStorage, got.status, got.body)
	assert.Contains(t, got.problem(t).Detail, "the disk has room for")
	assert.Equal(t, http.StatusCreated, l.announce("os_images", sample("small", 1<<20, nil)).status)
}

func TestQuotaIsSaidBeforeTheFirstOctet(t *testing.T) {
	l := newLab(t, inFolder(t), func(c *api.Config) { c.Blobs.Quota = func(string) int64 { return 100 } })
	got := l.announce("os_images", sample("large", 101, nil))
	assert.Equal(t, http.StatusRequestEntityTooLarge, got.status)
	assert.Contains(t, got.problem(t).Detail, "owner alpha may have 100 bytes")
}
