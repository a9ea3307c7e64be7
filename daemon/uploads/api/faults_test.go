package api_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/uploads/api"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
	"firstlight.dev/firstlight/daemon/uploads/blobs/s3test"
)

// smallParts makes uploads of a few MiB have several parts.
func smallParts(c *api.Config) { c.Blobs.PartSize = blobs.MinPart }

// sendCut announces all that remains, sends n octets of it and cuts the connection.
func (l *lab) sendCut(path string, rest []byte, offset, n int) {
	u, err := url.Parse(l.url)
	require.NoError(l.t, err)
	c, err := tls.Dial("tcp", u.Host, l.client.Transport.(*http.Transport).TLSClientConfig)
	require.NoError(l.t, err)
	_, err = fmt.Fprintf(c, "PATCH %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nUpload-Offset: %d\r\nContent-Length: %d\r\n\r\n", path, u.Host, l.token, offset, len(rest))
	require.NoError(l.t, err)
	_, err = c.Write(rest[:n])
	require.NoError(l.t, err)
	require.NoError(l.t, c.Close())
}

// offset waits until no request writes, and returns where the upload goes on.
func (l *lab) offset(path string) int {
	got := l.do("PATCH", path, nil, "Upload-Offset", "0")
	for got.status == http.StatusConflict && strings.Contains(got.body, "another request") {
		got = l.do("PATCH", path, nil, "Upload-Offset", "0")
	}
	if got.status == http.StatusNoContent {
		return 0
	}
	require.Equal(l.t, http.StatusConflict, got.status, got.body)
	n, err := strconv.Atoi(got.header.Get("Upload-Offset"))
	require.NoError(l.t, err)
	return n
}

func TestUploadCutGoesOnAtTheOctet(t *testing.T) {
	stores(t, func(t *testing.T, c place) {
		l := newLab(t, c, smallParts)
		image, path := noise(17<<20+4321, 11), base+"container_images/cut"
		made := l.announce("container_images", sample("cut", len(image), func(m map[string]any) { m["sha256"] = strings.ToUpper(digest(image)) }))
		require.Equal(t, http.StatusCreated, made.status, made.body)
		at := 0
		for _, percent := range []int{30, 60, 90} {
			n := len(image)*percent/100 - at
			l.sendCut(path, image[at:], at, n)
			at += n
			assert.Equal(t, at, l.offset(path), "what arrived before the cut is kept, to the octet")
			l.restart()
			assert.Equal(t, at, l.offset(path), "also by an agent that starts again")
		}
		last := l.patch(path, at, image[at:])
		require.Equal(t, http.StatusNoContent, last.status, last.body)
		r := l.do("GET", path, nil).record(t)
		assert.True(t, r.Complete)
		assert.Equal(t, digest(image), r.SHA256)
		assert.Equal(t, digest(image), digest([]byte(l.do("GET", path+"/content", nil).body)))
	})
}

// Any sizes of pieces, with agents that come and go between them.
func TestUploadInPiecesOfAnySize(t *testing.T) {
	stores(t, func(t *testing.T, c place) {
		l := newLab(t, c, smallParts)
		image, path := noise(12<<20+1, 5), base+"binary_images/pieces"
		require.Equal(t, http.StatusCreated, l.announce("binary_images", sample("pieces", len(image), nil)).status)
		rnd := rand.New(rand.NewPCG(1, 2))
		at, sizes := 0, []int{1, 1, 7, 511, 1 << 10, 64 << 10, 1 << 20, blobs.MinPart - 1, blobs.MinPart, blobs.MinPart + 1}
		for i := 0; at < len(image); i++ {
			n := min(sizes[rnd.IntN(len(sizes))], len(image)-at)
			if i < 70 { // more fragments than one part may have
				n = 3
			}
			got := l.patch(path, at, image[at:at+n])
			require.Equal(t, http.StatusNoContent, got.status, got.body)
			if at += n; i%30 == 29 {
				l.restart()
			}
		}
		assert.Equal(t, digest(image), digest([]byte(l.do("GET", path+"/content", nil).body)))
		assertOnly(t, c, "binary", ".firstlight/records/alpha/beta/pieces", "alpha/beta/pieces")
	})
}

// assertOnly holds that a bucket has these objects, no other and no unfinished upload.
func assertOnly(t *testing.T, c place, bucket string, names ...string) {
	t.Helper()
	s, err := c.open()
	require.NoError(t, err)
	have := []string{}
	require.NoError(t, s.List(t.Context(), bucket, "", func(o blobs.Object) error { have = append(have, o.Name); return nil }))
	assert.ElementsMatch(t, names, have)
	uploads, err := s3test.PendingUploads(t.Context(), s, bucket)
	require.NoError(t, err)
	assert.Empty(t, uploads)
}

// slowly sends octets in small pieces, so that a kill meets an upload under way. It closes
// reached after limit of them, if there is such a channel.
type slowly struct {
	from    io.Reader
	pause   time.Duration
	sent    int
	limit   int
	reached chan struct{}
}

func (s *slowly) Read(p []byte) (int, error) {
	time.Sleep(s.pause)
	n, err := s.from.Read(p[:min(len(p), 128<<10)])
	if s.sent += n; s.reached != nil && s.sent >= s.limit {
		close(s.reached)
		s.reached = nil
	}
	return n, err
}

func TestUploadKilledThreeTimesEndsVerified(t *testing.T) {
	stores(t, func(t *testing.T, c place) {
		l := newLab(t, c, nil)
		kill := l.inProcess(c, blobs.MinPart)
		image, path := noise(60<<20+99, 13), base+"container_images/killed"
		made := l.announce("container_images", sample("killed", len(image), func(m map[string]any) { m["sha256"] = digest(image) }))
		require.Equal(t, http.StatusCreated, made.status, made.body)
		at := 0
		for round := range 3 {
			reached, ended := make(chan struct{}), make(chan struct{})
			body := &slowly{from: bytes.NewReader(image[at:]), pause: time.Millisecond, limit: 6<<20 + rand.IntN(10<<20), reached: reached}
			go func() {
				defer close(ended)
				_, _ = l.try("PATCH", path, body, "Upload-Offset", strconv.Itoa(at)) // it is killed
			}()
			<-reached
			kill()
			<-ended
			l.start()
			now := l.offset(path)
			t.Logf("kill %d: from %d on %d bytes were sent, the upload goes on at %d", round+1, at, body.sent, now)
			assert.LessOrEqual(t, now, at+body.sent)
			assert.GreaterOrEqual(t, now, at, "what was answered for stays")
			at = now
		}
		last := l.patch(path, at, image[at:])
		require.Equal(t, http.StatusNoContent, last.status, last.body)
		r := l.do("GET", path, nil).record(t)
		t.Logf("complete: %v, %d bytes, sha256 %s", r.Complete, r.ImageOffset, r.SHA256)
		assert.True(t, r.Complete)
		assert.Equal(t, digest(image), digest([]byte(l.do("GET", path+"/content", nil).body)))
	})
}

// comingAndGoing is an S3 server that hangs up on everybody while it is away.
func comingAndGoing(t testing.TB) (c place, away *atomic.Bool) {
	away = new(atomic.Bool)
	return inMemory(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if away.Load() {
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		})
	}), away
}

func TestStoreAwayUnderAnUpload(t *testing.T) {
	c, away := comingAndGoing(t)
	l := newLab(t, c, smallParts)
	image, path := noise(30<<20, 17), base+"container_images/steady"
	require.Equal(t, http.StatusCreated, l.announce("container_images", sample("steady", len(image), nil)).status)
	var outages sync.WaitGroup
	outages.Go(func() {
		for range 3 {
			time.Sleep(150 * time.Millisecond)
			away.Store(true)
			time.Sleep(100 * time.Millisecond)
			away.Store(false)
		}
	})
	got := l.do("PATCH", path, &slowly{from: bytes.NewReader(image), pause: 3 * time.Millisecond}, "Upload-Offset", "0")
	outages.Wait()
	assert.Equal(t, http.StatusNoContent, got.status, "the client sees nothing of it: %s", got.body)
	assert.Equal(t, digest(image), digest([]byte(l.do("GET", path+"/content", nil).body)))
}

// A store that stays away ends the request with 503; what was answered for before is kept.
func TestStoreThatStaysAway(t *testing.T) {
	c, away := comingAndGoing(t)
	c.S3.RetryTimeout = 200 * time.Millisecond
	l := newLab(t, c, smallParts)
	image, path := noise(20<<20, 19), base+"container_images/away"
	require.Equal(t, http.StatusCreated, l.announce("container_images", sample("away", len(image), nil)).status)
	require.Equal(t, http.StatusNoContent, l.patch(path, 0, image[:7<<20]).status)
	away.Store(true)
	got := l.patch(path, 7<<20, image[7<<20:])
	assert.Equal(t, http.StatusServiceUnavailable, got.status, got.body)
	assert.Equal(t, strconv.Itoa(7<<20), got.header.Get("Upload-Offset"))
	assert.NotEmpty(t, got.header.Get("Retry-After"))
	away.Store(false)
	assert.Equal(t, 7<<20, l.offset(path))
	assert.Equal(t, http.StatusNoContent, l.patch(path, 7<<20, image[7<<20:]).status)
	assert.Equal(t, digest(image), l.do("GET", path, nil).record(t).SHA256)
}

func TestTwoWritersOfOneName(t *testing.T) {
	stores(t, func(t *testing.T, c place) {
		l := newLab(t, c, smallParts)
		path := base + "binary_images/shared"
		images := [2][]byte{noise(8<<20, 23), noise(8<<20, 29)}
		count := func(do func(i int) answer) map[int]int {
			var mu sync.Mutex
			var both sync.WaitGroup
			found := map[int]int{}
			for i := range images {
				both.Go(func() {
					got := do(i)
					mu.Lock()
					defer mu.Unlock()
					found[got.status]++
				})
			}
			both.Wait()
			return found
		}
		assert.Equal(t, map[int]int{201: 1, 409: 1}, count(func(int) answer { return l.announce("binary_images", sample("shared", 8<<20, nil)) }))
		found := count(func(i int) answer { return l.patch(path, 0, images[i]) })
		assert.Equal(t, 1, found[http.StatusNoContent], "%v", found)
		assert.Equal(t, 1, found[http.StatusConflict]+found[http.StatusUnprocessableEntity], "%v", found)
		sum := digest([]byte(l.do("GET", path+"/content", nil).body))
		assert.Contains(t, []string{digest(images[0]), digest(images[1])}, sum, "one of them, not a mixture")
		assert.Equal(t, sum, l.do("GET", path, nil).record(t).SHA256)
	})
}

func TestWrongDigestKeepsNothing(t *testing.T) {
	stores(t, func(t *testing.T, c place) {
		l := newLab(t, c, smallParts)
		image, path := noise(6<<20, 31), base+"binary_images/spoilt"
		require.Equal(t, http.StatusCreated, l.announce("binary_images", sample("spoilt", len(image), func(m map[string]any) { m["sha256"] = digest(image) })).status)
		spoilt := bytes.Clone(image)
		spoilt[3<<20]++
		got := l.patch(path, 0, spoilt)
		assert.Equal(t, http.StatusUnprocessableEntity, got.status)
		assert.Contains(t, got.problem(t).Detail, digest(spoilt))
		assert.Equal(t, "0", got.header.Get("Upload-Offset"))
		assert.Equal(t, int64(0), l.do("GET", path, nil).record(t).ImageOffset)
		assertOnly(t, c, "binary", ".firstlight/records/alpha/beta/spoilt")
		assert.Equal(t, http.StatusNoContent, l.patch(path, 0, image).status, "and the right ones are taken")
	})
}

func TestDeleteEndsAnUpload(t *testing.T) {
	stores(t, func(t *testing.T, c place) {
		l := newLab(t, c, smallParts)
		image, path := noise(12<<20, 37), base+"binary_images/unwanted"
		require.Equal(t, http.StatusCreated, l.announce("binary_images", sample("unwanted", len(image), nil)).status)
		r, w := io.Pipe()
		ended := make(chan answer, 1)
		go func() {
			got, err := l.try("PATCH", path, r, "Upload-Offset", "0")
			if err != nil { // the connection went before the answer was read
				got.status = http.StatusConflict
			}
			ended <- got
		}()
		_, err := w.Write(image[:11<<20])
		require.NoError(t, err)
		assert.Equal(t, http.StatusNoContent, l.do("DELETE", path, nil).status)
		got := <-ended
		w.Close()
		assert.Equal(t, http.StatusConflict, got.status, got.body)
		assert.Equal(t, http.StatusNotFound, l.do("GET", path, nil).status)
		assertOnly(t, c, "binary")
		assert.Equal(t, http.StatusCreated, l.announce("binary_images", sample("unwanted", 5, nil)).status, "the name is free")
	})
}

// An agent that is stopped keeps what came of an upload, and says how far it is.
func TestStopUnderAnUpload(t *testing.T) {
	stores(t, func(t *testing.T, c place) {
		l := newLab(t, c, smallParts)
		image, path := noise(12<<20, 67), base+"binary_images/stopped"
		require.Equal(t, http.StatusCreated, l.announce("binary_images", sample("stopped", len(image), nil)).status)
		r, w := io.Pipe()
		defer w.Close()
		ended := make(chan answer, 1)
		go func() {
			got, err := l.try("PATCH", path, r, "Upload-Offset", "0")
			assert.NoError(t, err)
			ended <- got
		}()
		_, err := w.Write(image[:7<<20+77])
		require.NoError(t, err)
		for l.do("GET", path, nil).record(t).ImageOffset < 6<<20 {
			time.Sleep(10 * time.Millisecond)
		}
		l.stop()
		got := <-ended
		assert.Equal(t, http.StatusRequestTimeout, got.status, got.body)
		l.start()
		at := l.offset(path)
		assert.Equal(t, strconv.Itoa(at), got.header.Get("Upload-Offset"))
		assert.GreaterOrEqual(t, at, 6<<20)
		require.Equal(t, http.StatusNoContent, l.patch(path, at, image[at:]).status)
		assert.Equal(t, digest(image), digest([]byte(l.do("GET", path+"/content", nil).body)))
	})
}

func TestParallelUploads(t *testing.T) {
	stores(t, func(t *testing.T, c place) {
		l := newLab(t, c, smallParts)
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				name, image := fmt.Sprintf("image-%d", i), noise(6<<20+i, uint64(71+i))
				path := base + "container_images/" + name
				assert.Equal(t, http.StatusCreated, l.announce("container_images", sample(name, len(image), func(m map[string]any) { m["sha256"] = digest(image) })).status)
				got := l.patch(path, 0, image)
				assert.Equal(t, http.StatusNoContent, got.status, got.body)
				assert.Equal(t, digest(image), digest([]byte(l.do("GET", path+"/content", nil).body)))
			})
		}
		all.Wait()
	})
}
