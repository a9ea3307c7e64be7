package api_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/uploads/api"
	"firstlight.dev/firstlight/daemon/uploads/api/access"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
	"firstlight.dev/firstlight/daemon/uploads/blobs/s3"
	"firstlight.dev/firstlight/daemon/uploads/blobs/s3test"
)

const base = artifact.Base + "/alpha/beta/"

// people are whom the lab's agent knows: admin may do everything, reader may read, of owner
// alpha. What the API server says of real tokens is tested in cmd/firstlightd.
type people struct{}

func (people) Authenticate(_ context.Context, r *http.Request) (access.User, error) {
	switch token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "); token {
	case "admin", "reader":
		return access.User{Name: token}, nil
	case "outage":
		return access.User{}, fmt.Errorf("the API server is down")
	}
	return access.User{}, access.ErrAnonymous
}

func (people) Authorize(_ context.Context, u access.User, r access.Request) (bool, error) {
	reads := r.Verb == "get" || r.Verb == "list"
	return u.Name == "admin" || u.Name == "reader" && reads && r.Namespace == "alpha", nil
}

// lab is an agent that runs, and its store.
type lab struct {
	t      testing.TB
	url    string
	client *http.Client
	config api.Config
	api    *apiDocument
	token  string
	pid    int           // of an agent that is a process of its own
	begin  func() string // starts the agent, returns its address
	stop   func()
}

// place is where artifacts are kept: in a folder, or in an S3 server.
type place struct {
	Dir string // "": in the server
	S3  s3.Config
}

func (p place) open() (blobs.Backend, error) {
	if p.Dir != "" {
		return &blobs.Folder{Dir: p.Dir}, nil
	}
	if p.S3.Scratch == "" {
		p.S3.Scratch = os.TempDir()
	}
	return s3.New(p.S3)
}

func inFolder(t testing.TB) place { return place{Dir: filepath.Join(t.TempDir(), "store")} }

// inMemory is an S3 server in this process; wrap may answer in its place.
func inMemory(t testing.TB, wrap func(http.Handler) http.Handler) place {
	c := s3test.StartInMemory(t, wrap)
	c.Scratch = t.TempDir()
	return place{S3: c}
}

// stores runs a test with artifacts in a folder and in S3 servers: one in memory and, if asked for, others.
func stores(t *testing.T, test func(t *testing.T, c place)) {
	t.Run("folder", func(t *testing.T) { test(t, inFolder(t)) })
	t.Run("memory", func(t *testing.T) { test(t, inMemory(t, nil)) })
	t.Run("gateway", func(t *testing.T) { test(t, place{S3: s3test.NewGateway(t).Config}) })
	t.Run("other", func(t *testing.T) { test(t, place{S3: s3test.ExternalStore(t)}) })
}

// newLab starts an agent over a store; change may be nil.
func newLab(t testing.TB, c place, change func(*api.Config)) *lab {
	t.Helper()
	s, err := c.open()
	require.NoError(t, err)
	dir := t.TempDir()
	authority, err := ca.Open(filepath.Join(dir, "pki"), time.Now)
	require.NoError(t, err)
	_, _, err = authority.Issue("artifacts", ca.Names{Of: "artifacts", Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
	require.NoError(t, err)
	at := func(name string) string { return filepath.Join(dir, "pki", name) }
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError + 4}))
	l := &lab{t: t, token: "admin", config: api.Config{
		Listen: "127.0.0.1:0", TLS: api.Files{Cert: at("artifacts.crt"), Key: at("artifacts.key"), ClientCA: at("ca.crt")},
		Authenticator: people{}, Authorizer: people{}, Log: log, Blobs: blobs.Config{Backend: s, Scratch: dir, Log: log},
	}}
	if change != nil {
		change(&l.config)
	}
	l.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool()}}}
	l.begin = l.beginHere
	l.start()
	t.Cleanup(func() { l.stop() })
	l.api = readAPI(t, l)
	return l
}

// beginHere runs the agent in this process until stop.
func (l *lab) beginHere() string {
	a, err := api.New(l.config)
	require.NoError(l.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	addr, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() { ended <- a.Run(ctx, func(a net.Addr) { addr <- a }) }()
	l.stop = func() {
		cancel()
		require.NoError(l.t, <-ended)
		l.stop = func() {}
		l.client.CloseIdleConnections()
	}
	return (<-addr).String()
}

// start starts the agent and waits until it has read the store.
func (l *lab) start() {
	l.url = "https://" + l.begin()
	for {
		r, err := l.client.Get(l.url + "/readyz")
		require.NoError(l.t, err)
		r.Body.Close()
		if r.StatusCode == http.StatusOK {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// restart is what an appliance that is switched off and on does to an agent at rest.
func (l *lab) restart() {
	l.stop()
	l.start()
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) problem(t testing.TB) artifact.Problem {
	var p artifact.Problem
	require.NoError(t, json.Unmarshal([]byte(a.body), &p), "%s", a.body)
	return p
}

func (a answer) record(t testing.TB) artifact.Metadata {
	var r artifact.Metadata
	require.NoError(t, json.Unmarshal([]byte(a.body), &r), "%s", a.body)
	return r
}

// do sends a request and compares the exchange with the OpenAPI document. header is pairs.
func (l *lab) do(method, path string, body io.Reader, header ...string) answer {
	l.t.Helper()
	a, err := l.try(method, path, body, header...)
	require.NoError(l.t, err)
	if l.api != nil {
		l.api.check(l.t, method, path, a)
	}
	return a
}

func (l *lab) try(method, path string, body io.Reader, header ...string) (answer, error) {
	r, err := http.NewRequest(method, l.url+path, body)
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Authorization", "Bearer "+l.token)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := l.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text)}, err
}

// form is a multipart form as curl makes it of ICN's sample flow.
func form(metadata string) (body io.Reader, contentType string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part, _ := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="metadata"`}, "Content-Type": {"application/json"}})
	_, _ = part.Write([]byte(metadata))
	part, _ = w.CreateFormFile("file", "sample.json")
	_, _ = part.Write([]byte(metadata))
	_ = w.Close()
	return &b, w.FormDataContentType()
}

// sample is ICN's sample record; change may be nil.
func sample(name string, length int, change func(map[string]any)) string {
	r := map[string]any{"owner": "alpha", "cluster_name": "beta", "type": "container", "image_name": name, "image_offset": 0,
		"image_length": length, "upload_complete": false,
		"description": map[string]any{"image_records": []map[string]string{{"image_record_name": "iuysdi1234", "repo": "icn", "tag": "2"}}}}
	if change != nil {
		change(r)
	}
	text, _ := json.Marshal(r)
	return string(text)
}

func (l *lab) announce(collection, metadata string) answer {
	l.t.Helper()
	body, contentType := form(metadata)
	return l.do("POST", base+collection, body, "Content-Type", contentType)
}

func (l *lab) put(path, metadata string) answer {
	l.t.Helper()
	body, contentType := form(metadata)
	return l.do("PUT", path, body, "Content-Type", contentType)
}

// patch sends a piece as ICN's clients do.
func (l *lab) patch(path string, offset int, piece []byte) answer {
	l.t.Helper()
	return l.do("PATCH", path, bytes.NewReader(piece), "Upload-Offset", strconv.Itoa(offset))
}

// noise is octets that repeat nowhere near.
func noise(n int, seed uint64) []byte {
	b := make([]byte, n)
	for i := range b {
		seed ^= seed << 13
		seed ^= seed >> 7
		seed ^= seed << 17
		b[i] = byte(seed >> 24)
	}
	return b
}

func decode(t testing.TB, text string, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), into), "%s", text)
}

// certificatesFirst knows clients by certificate, under their common names.
type certificatesFirst struct{ people }

func (certificatesFirst) Authenticate(ctx context.Context, r *http.Request) (access.User, error) {
	u, err := access.Certificates{}.Authenticate(ctx, r)
	u.Name = strings.TrimPrefix(u.Name, access.CertificatePrefix)
	return u, err
}
