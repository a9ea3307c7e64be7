package page

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/textproto"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/uploads/api"
	"firstlight.dev/firstlight/daemon/uploads/api/access"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
)

// uploadAgent is the upload API as the appliance serves it, with the rights of Rights.
type uploadAgent struct {
	t     *testing.T
	agent *api.Agent
	log   string // its audit log
	base  *url.URL
	reach http.RoundTripper

	good   atomic.Int64 // pieces until one is lost
	pieces atomic.Int64 // that were passed on
}

// roles is the API server's answer about uploads.
type roles struct{ *apiServer }

func (r roles) Authorize(_ context.Context, u access.User, asked access.Request) (bool, error) {
	return r.allows(u.Groups[0], asked.Group, asked.Resource, asked.Verb), nil
}

// newUploads starts the upload API, and has a server pass uploads on to it.
func newUploads(t *testing.T, r *fixture) *uploadAgent {
	dir := t.TempDir()
	authority, err := ca.Open(filepath.Join(dir, "pki"), time.Now)
	require.NoError(t, err)
	_, _, err = authority.Issue("artifacts", ca.Names{Of: "artifacts", Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
	require.NoError(t, err)
	pair, err := authority.Sign(ca.Names{Of: access.PageClient, Client: true})
	require.NoError(t, err)
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	require.NoError(t, err)

	u := &uploadAgent{t: t, log: filepath.Join(dir, "uploads.log")}
	u.lose(1000)
	log := slog.New(slog.DiscardHandler)
	at := func(name string) string { return filepath.Join(dir, "pki", name) }
	u.agent, err = api.New(api.Config{
		Listen:        "127.0.0.1:0",
		TLS:           api.Files{Cert: at("artifacts.crt"), Key: at("artifacts.key"), ClientCA: at("ca.crt")},
		Authenticator: access.Chain{access.People{}, access.Certificates{}},
		Authorizer:    roles{r.api},
		Log:           log,
		Audit:         audit.NewLog(u.log, log),
		Blobs:         blobs.Config{Backend: &blobs.Folder{Dir: filepath.Join(dir, "store")}, Scratch: dir, Log: log},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	addr, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() { ended <- u.agent.Run(ctx, func(a net.Addr) { addr <- a }) }()
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: authority.Pool(), Certificates: []tls.Certificate{certificate},
	}}
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		transport.CloseIdleConnections()
	})
	u.base = &url.URL{Scheme: "https", Host: (<-addr).String()}
	u.reach = transport
	r.deeds.Uploads = func() (*url.URL, http.RoundTripper, error) { return u.base, u, nil }
	require.Eventually(t, func() bool { return u.agent.Store() != nil }, time.Minute, 10*time.Millisecond)
	return u
}

// RoundTrip is the way to the API, on which pieces are counted and may get lost.
func (u *uploadAgent) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch {
		if u.good.Add(-1) < 0 {
			return nil, io.ErrUnexpectedEOF
		}
		u.pieces.Add(1)
	}
	return u.reach.RoundTrip(r)
}

// lose has pieces lost after so many that are passed on from now.
func (u *uploadAgent) lose(after int64) { u.good.Store(after) }

// content is a record, and the bytes of what is complete.
func (u *uploadAgent) content(k artifact.Key) (artifact.Metadata, []byte) {
	have, err := u.agent.Store().Get(k)
	require.NoError(u.t, err)
	from, _, err := u.agent.Store().Content(u.t.Context(), k)
	require.NoError(u.t, err)
	defer from.Close()
	all, err := io.ReadAll(from)
	require.NoError(u.t, err)
	return have, all
}

const uploadScope = uploadsPath + artifact.Base + "/alpha/beta/binary_images"

// announce sends the form of an upload as the page's script does.
func announce(b browser, csrf, name string, content []byte) *httptest.ResponseRecorder {
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	part, err := w.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {`form-data; name="metadata"; filename="blob"`}, "Content-Type": {"application/json"},
	})
	require.NoError(b.t, err)
	sum := sha256.Sum256(content)
	fmt.Fprintf(part, `{"owner": "alpha", "cluster_name": "beta", "image_name": %q, "image_length": %d, "sha256": %q}`,
		name, len(content), hex.EncodeToString(sum[:]))
	_, err = w.CreateFormFile("file", name)
	require.NoError(b.t, err)
	require.NoError(b.t, w.Close())
	return b.ask("POST", uploadScope, body.String(), "Content-Type", w.FormDataContentType(), csrfHeader, csrf)
}

func sendPiece(b browser, csrf, name string, offset int, piece []byte) *httptest.ResponseRecorder {
	return b.ask("PATCH", uploadScope+"/"+name, string(piece), "Content-Type", "application/octet-stream",
		csrfHeader, csrf, artifact.HeaderOffset, fmt.Sprint(offset))
}

// TestUploadsArePassedOnAsThePersonWhoAsks: the upload API decides, refuses in its own words, and knows who it was.
func TestUploadsArePassedOnAsThePersonWhoAsks(t *testing.T) {
	r := newFixture(t)
	u := newUploads(t, r)
	content := []byte(strings.Repeat("upload", 1000))
	b := logInAs(t, r.Server, Operator)
	csrf := b.open("/uploads").all("input")[0].attr("value")

	assert.Equal(t, http.StatusForbidden, announce(b, "", "tool", content).Code, "no token")
	assert.Equal(t, http.StatusForbidden, announce(b, newSecret(), "tool", content).Code, "a forged token")
	viewer := logIn(t, r.Server)
	assert.Equal(t, http.StatusForbidden, announce(viewer, viewer.open("/").all("input")[0].attr("value"), "tool", content).Code)
	assert.Equal(t, http.StatusUnauthorized, announce(newVisitor(t, r.Server), csrf, "tool", content).Code)

	assert.Len(t, r.entries(), 3, "whoever was known")
	w := announce(b, csrf, "tool", content)
	require.Equal(t, http.StatusCreated, w.Code, w.Body)
	assert.Empty(t, w.Header().Get("Location"))
	w = sendPiece(b, csrf, "tool", 0, content[:100])
	require.Equal(t, http.StatusNoContent, w.Code, w.Body)
	assert.Equal(t, "100", w.Header().Get(artifact.HeaderOffset))
	w = sendPiece(b, csrf, "tool", 50, content[50:])
	assert.Equal(t, http.StatusConflict, w.Code)
	assert.Contains(t, w.Body.String(), `"offset":100`, "where it resumes")
	w = sendPiece(b, csrf, "tool", 100, content[100:])
	require.Equal(t, http.StatusNoContent, w.Code, w.Body)
	have, got := u.content(artifact.Key{Collection: artifact.Binary, Owner: "alpha", Cluster: "beta", Name: "tool"})
	assert.True(t, have.Complete)
	assert.Equal(t, content, got)
	assert.Contains(t, b.ask("GET", uploadScope+"/tool", "").Body.String(), have.SHA256)

	w = announce(b, csrf, "no name", content)
	assert.Equal(t, http.StatusUnprocessableEntity, w.Code)
	assert.Contains(t, w.Body.String(), "is not allowed; use up to 128 of letters")
	assert.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
	assert.Equal(t, http.StatusMethodNotAllowed, b.ask("DELETE", uploadScope+"/tool", "", csrfHeader, csrf).Code)

	var people []string
	entries, err := audit.Read([]string{u.log, r.log}, time.Time{})
	require.NoError(t, err)
	for _, e := range entries {
		assert.Equal(t, "firstlight:ann@laptop", e.User)
		people = append(people, e.Verb)
	}
	assert.Contains(t, people, "create", "the API's own log")
	assert.Contains(t, people, "patch")
	assert.Contains(t, people, "upload", "the page's log, which has the browser's address")

	r.api.forbids = true
	w = announce(b, csrf, "other", content)
	assert.Equal(t, http.StatusForbidden, w.Code)
	assert.Contains(t, w.Body.String(), "firstlight:ann@laptop may not create")

	r.api.forbids = false
	long := make([]byte, maxPiece+1)
	require.Equal(t, http.StatusCreated, announce(b, csrf, "long", long).Code)
	w = sendPiece(b, csrf, "long", 0, long)
	assert.Equal(t, http.StatusRequestEntityTooLarge, w.Code, w.Body)

	known := len(r.entries())
	r.deeds.Uploads = func() (*url.URL, http.RoundTripper, error) { return nil, nil, io.EOF }
	w = announce(b, csrf, "other", content)
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Contains(t, w.Body.String(), "cannot be reached")
	u.base.Host = "127.0.0.1:1"
	r.deeds.Uploads = func() (*url.URL, http.RoundTripper, error) { return u.base, u, nil }
	assert.Contains(t, announce(b, csrf, "other", content).Body.String(), "does not answer")
	assert.Len(t, r.entries(), known+2, "also of those that reached no API")
}

func TestUploadsAreForWhoeverMayUpload(t *testing.T) {
	for _, role := range Roles() {
		d := logInAs(t, newServer(t, rack(1)), role).open("/uploads")
		assert.Equal(t, role != Viewer, d.id("upload") != nil, role)
		if role != Viewer {
			assert.Contains(t, d.id("upload").all("noscript")[0].text(), "firstlight artifact push FILE")
		}
	}
	assert.Nil(t, logInAs(t, newServer(t, begun()), Owner).open("/uploads").id("upload"), "there is no place for it")
}

// blockedReach is an upload API that answers nobody until it is told to.
type blockedReach struct{ asked, answers chan struct{} }

func (b blockedReach) RoundTrip(*http.Request) (*http.Response, error) {
	b.asked <- struct{}{}
	<-b.answers
	return nil, io.ErrUnexpectedEOF
}

// TestASessionLeavesPlacesForOthers: one that has many requests under way is refused more, others are not.
func TestASessionLeavesPlacesForOthers(t *testing.T) {
	r := newFixture(t)
	reach := blockedReach{make(chan struct{}, maxUploads), make(chan struct{})}
	r.deeds.Uploads = func() (*url.URL, http.RoundTripper, error) { return &url.URL{Scheme: "https", Host: "x"}, reach, nil }
	greedy, other := logInAs(t, r.Server, Operator), logInAs(t, r.Server, Operator)
	var wait sync.WaitGroup
	begin := func(b browser) {
		wait.Go(func() { b.ask("GET", uploadScope+"/tool", "") })
		<-reach.asked
	}
	for range maxSessionUploads {
		begin(greedy)
	}
	w := greedy.ask("GET", uploadScope+"/tool", "")
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Contains(t, w.Body.String(), "too many uploads by your session")
	begin(other)

	close(reach.answers)
	wait.Wait()
	w = greedy.ask("GET", uploadScope+"/tool", "")
	assert.Contains(t, w.Body.String(), "the upload API does not answer", "its places are free again")
}

// TestPiecesDoNotKeepASessionOpen: what a script sends is no use of a session that can act.
func TestPiecesDoNotKeepASessionOpen(t *testing.T) {
	r := newFixture(t)
	newUploads(t, r)
	now := time.Now()
	r.logins.now = func() time.Time { return now }
	b := logInAs(t, r.Server, Operator)
	for range 3 {
		now = now.Add(Operator.lifetime().idle / 2)
		b.ask("GET", uploadScope+"/tool", "")
	}
	assert.Equal(t, http.StatusUnauthorized, b.ask("GET", uploadScope+"/tool", "").Code)
}
