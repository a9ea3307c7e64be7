package registry

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/layer"
	"firstlight.dev/firstlight/daemon/appliance/ca"
)

// fixture is a registry of a test with one image on the stick.
type fixture struct {
	t       *testing.T
	stick   v1.Image
	config  Config
	ca      authority
	metrics *prometheus.Registry
}

func newFixture(t *testing.T) *fixture {
	dir := t.TempDir()
	stick, err := random.Image(3000, 2)
	require.NoError(t, err)
	archive := program(t)
	stick, err = mutate.AppendLayers(stick, static.NewLayer(archive, types.OCIUncompressedLayer))
	require.NoError(t, err)
	l, err := layout.Write(filepath.Join(dir, "bundle"), empty.Index)
	require.NoError(t, err)
	require.NoError(t, l.AppendImage(stick, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": "firstlight.internal/pause:3.10.2"})))
	unpack(t, filepath.Join(dir, "bundle"), archive)
	own := newAuthority(t)
	return &fixture{t: t, stick: stick, ca: own, metrics: prometheus.NewRegistry(),
		config: Config{Layout: filepath.Join(dir, "bundle"), Store: filepath.Join(dir, "store"), Log: slog.New(slog.DiscardHandler)}}
}

// program is the archive of a layer with one file of 3000 octets.
func program(t *testing.T) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "./pause", Typeflag: tar.TypeReg, Mode: 0o755, Size: 3000}))
	_, err := w.Write(bytes.Repeat([]byte("pause "), 500))
	require.NoError(t, errors.Join(err, w.Close()))
	return b.Bytes()
}

// unpack replaces the blob of a layer by what it unpacks to, as on the stick.
func unpack(t *testing.T, bundle string, archive []byte) {
	headers, contents, err := layer.Split(bytes.NewReader(archive))
	require.NoError(t, err)
	hex := fmt.Sprintf("%x", sha256.Sum256(archive))
	require.NoError(t, os.Remove(filepath.Join(bundle, "blobs/sha256", hex)))
	dir := filepath.Join(bundle, layer.Dir, hex)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, layer.Files), 0o755))
	for name, text := range map[string][]byte{layer.Headers: headers, layer.Contents: contents, layer.Files + "/pause": bytes.Repeat([]byte("pause "), 500)} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
}

// authority is the appliance's, with what a test wants of it.
type authority struct {
	*ca.Authority
	t *testing.T
}

func newAuthority(t *testing.T) authority {
	a, err := ca.Open(t.TempDir(), time.Now)
	require.NoError(t, err)
	return authority{a, t}
}

// certificate has a common name and maybe addresses.
func (a authority) certificate(commonName string, addrs ...netip.Addr) tls.Certificate {
	pair, _, err := a.Issue(commonName, ca.Names{Of: commonName, Addrs: addrs, Client: len(addrs) == 0})
	require.NoError(a.t, err)
	c, err := tls.X509KeyPair(pair.Cert, pair.Key)
	require.NoError(a.t, err)
	return c
}

// start serves the registry as Run would, on a port of the test's, and returns its host:port.
func (b *fixture) start() string {
	b.t.Helper()
	_, host := b.serve()
	return host
}

func (b *fixture) serve() (*Server, string) {
	b.t.Helper()
	s, err := New(b.config)
	require.NoError(b.t, err)
	web := httptest.NewUnstartedServer(s)
	web.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: b.ca.Pool(),
		Certificates: []tls.Certificate{b.ca.certificate("registry", netip.MustParseAddr("127.0.0.1"))}}
	web.StartTLS()
	b.t.Cleanup(web.Close)
	u, err := url.Parse(web.URL)
	require.NoError(b.t, err)
	return s, u.Host
}

// client has a certificate with a common name, or none.
func (b *fixture) client(commonName string) http.RoundTripper {
	c := &tls.Config{RootCAs: b.ca.Pool()}
	if commonName != "" {
		c.Certificates = []tls.Certificate{b.ca.certificate(commonName)}
	}
	return &http.Transport{TLSClientConfig: c}
}

func reference(t *testing.T, text string) name.Reference {
	r, err := name.ParseReference(text)
	require.NoError(t, err)
	return r
}

func digestOf(t *testing.T, i v1.Image) string {
	d, err := i.Digest()
	require.NoError(t, err)
	return d.String()
}

func TestTheSticksImagesArePulledByAnybody(t *testing.T) {
	b := newFixture(t)
	b.config.Registry, b.config.Public = b.metrics, func() map[string][]byte { return map[string][]byte{"/ca.crt": b.ca.PEM()} }
	host := b.start()
	for _, ref := range []string{host + "/pause:3.10.2", host + "/pause@" + digestOf(t, b.stick)} {
		image, err := remote.Image(reference(t, ref), remote.WithTransport(b.client("")))
		require.NoError(t, err, ref)
		assert.Equal(t, digestOf(t, b.stick), digestOf(t, image))
		layers, err := image.Layers()
		require.NoError(t, err)
		require.Len(t, layers, 3)
		for _, layer := range layers {
			r, err := layer.Compressed() // checked against its digest while it is read
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, r)
			require.NoError(t, err)
		}
	}
	response, err := (&http.Client{Transport: b.client("")}).Get("https://" + host + "/ca.crt")
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	assert.Equal(t, b.ca.PEM(), text)
	_, err = remote.Catalog(t.Context(), reference(t, host+"/pause").Context().Registry, remote.WithTransport(b.client("")))
	assert.ErrorContains(t, err, "the names of images are their owners'")
	catalog, err := remote.Catalog(t.Context(), reference(t, host+"/pause").Context().Registry, remote.WithTransport(b.client(Writer)))
	require.NoError(t, err)
	assert.Equal(t, []string{"pause"}, catalog)
	tags, err := remote.List(reference(t, host+"/pause").Context(), remote.WithTransport(b.client("")))
	require.NoError(t, err)
	assert.Equal(t, []string{"3.10.2"}, tags)
	assert.NoDirExists(t, b.config.Store, "the stick's images were stored again")

	counted, err := testutil.GatherAndCount(b.metrics, "firstlight_registry_requests_total")
	require.NoError(t, err)
	assert.NotZero(t, counted)
}

// A download that was cut off goes on where it ended.
func TestABlobIsServedFromItsMiddle(t *testing.T) {
	b := newFixture(t)
	host := b.start()
	layers, err := b.stick.Layers()
	require.NoError(t, err)
	require.Len(t, layers, 3, "the last of them unpacked")
	for _, l := range layers {
		digest, err := l.Digest()
		require.NoError(t, err)
		blob, err := l.Compressed()
		require.NoError(t, err)
		whole, err := io.ReadAll(blob)
		require.NoError(t, err)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+"/v2/pause/blobs/"+digest.String(), nil)
		require.NoError(t, err)
		request.Header.Set("Range", "bytes=1000-")
		response, err := b.client("").RoundTrip(request)
		require.NoError(t, err)
		rest, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, http.StatusPartialContent, response.StatusCode)
		assert.Equal(t, whole[1000:], rest)
	}
}

func TestWhatIsPushedIsKeptUnderItsOwnName(t *testing.T) {
	b := newFixture(t)
	pushed, err := random.Image(2000, 1)
	require.NoError(t, err)
	ref := "/registry.example/library/hello:v1"
	b.config.Owner = func(netip.Addr) string { return "alpha" }
	require.NoError(t, remote.Write(reference(t, b.start()+"/owners/alpha"+ref), pushed, remote.WithTransport(b.client(Writer))))

	host := b.start() // another process, as after a restart
	image, err := remote.Image(reference(t, host+ref), remote.WithTransport(b.client("")))
	require.NoError(t, err)
	assert.Equal(t, digestOf(t, pushed), digestOf(t, image))

	// As containerd asks a mirror for registry.example/library/hello:v1.
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+"/v2/library/hello/manifests/v1?ns=registry.example", nil)
	require.NoError(t, err)
	response, err := b.client("").RoundTrip(request)
	require.NoError(t, err)
	defer response.Body.Close()
	assert.Equal(t, http.StatusOK, response.StatusCode)
	assert.Equal(t, digestOf(t, pushed), response.Header.Get("Docker-Content-Digest"))

	require.NoError(t, remote.Delete(reference(t, host+"/owners/alpha/registry.example/library/hello@"+digestOf(t, pushed)), remote.WithTransport(b.client(Writer))))
	_, err = remote.Image(reference(t, host+"/registry.example/library/hello@"+digestOf(t, pushed)), remote.WithTransport(b.client("")))
	assert.Error(t, err)
}

// A name means what the owner of the asking node's cluster uploaded, and the stick's image where it has one.
func TestUploadedImagesAreTheirOwners(t *testing.T) {
	b := newFixture(t)
	owner := ""
	b.config.Owner = func(from netip.Addr) string {
		assert.True(t, from.IsLoopback(), "%s", from)
		return owner
	}
	host := b.start()
	push := func(repository string) string {
		i, err := random.Image(2000, 1)
		require.NoError(t, err)
		require.NoError(t, remote.Write(reference(t, host+repository), i, remote.WithTransport(b.client(Writer))), repository)
		return digestOf(t, i)
	}
	alpha, beta := push("/owners/alpha/docker.io/library/nginx:1"), push("/owners/beta/docker.io/library/nginx:1")
	own := push("/owners/alpha/firstlight.internal/tool:1")
	pull := func(as, where string) string {
		owner = as
		response, err := (&http.Client{Transport: b.client("")}).Get("https://" + host + where)
		require.NoError(t, err)
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			assert.Contains(t, []int{http.StatusNotFound, http.StatusForbidden}, response.StatusCode, where)
			return ""
		}
		return response.Header.Get("Docker-Content-Digest")
	}
	const nginx = "/v2/library/nginx/manifests/1?ns=docker.io"
	assert.Equal(t, alpha, pull("alpha", nginx))
	assert.Equal(t, beta, pull("beta", nginx))
	assert.Empty(t, pull("gamma", nginx))
	assert.Empty(t, pull("", nginx), "a machine of no cluster pulls what somebody uploaded")
	assert.Equal(t, own, pull("alpha", "/v2/tool/manifests/1?ns=firstlight.internal"))
	assert.Equal(t, own, pull("alpha", "/v2/tool/manifests/1"))
	for _, where := range []string{
		"/v2/owners/beta/docker.io/library/nginx/manifests/1", "/v2/beta/docker.io/library/nginx/manifests/1?ns=owners",
		"/v2/x/../owners/beta/docker.io/library/nginx/manifests/1", "/v2/docker.io/library/nginx/manifests/" + beta,
		"/v2/docker.io/library/nginx/blobs/" + beta, "/v2/_catalog", "/v2/_catalog/",
	} {
		assert.Empty(t, pull("alpha", where), where)
	}
	assert.Equal(t, digestOf(t, b.stick), pull("", "/v2/pause/manifests/3.10.2?ns=firstlight.internal"))

	for _, name := range []string{"/owners/alpha/firstlight.internal/pause:3.10.2", "/owners/alpha/pause:3.10.2"} {
		err := remote.Write(reference(t, host+name), b.stick, remote.WithTransport(b.client(Writer)))
		assert.ErrorContains(t, err, "image pause is the stick's own", name)
	}
}

func TestWhoMayNotPush(t *testing.T) {
	b := newFixture(t)
	host := b.start()
	other, err := random.Image(100, 1)
	require.NoError(t, err)
	forged := newAuthority(t).certificate(Writer)
	for _, c := range []struct {
		what, ref, says string
		with            http.RoundTripper
	}{
		{"nobody", "/new:v1", "only the appliance itself pushes images here", b.client("")},
		{"a node", "/new:v1", `certificate of "node-1" may not push`, b.client("node-1")},
		{"a writer of another authority", "/new:v1", "tls: ", &http.Transport{TLSClientConfig: &tls.Config{
			RootCAs: b.ca.Pool(), GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &forged, nil }}}},
		{"over the stick's", "/pause:3.10.2", "stays as it is", b.client(Writer)},
		{"beside the stick's", "/pause:latest", "stays as it is", b.client(Writer)},
	} {
		err := remote.Write(reference(t, host+c.ref), other, remote.WithTransport(c.with))
		assert.ErrorContains(t, err, c.says, c.what)
	}
	image, err := remote.Image(reference(t, host+"/pause:3.10.2"), remote.WithTransport(b.client("")))
	require.NoError(t, err)
	assert.Equal(t, digestOf(t, b.stick), digestOf(t, image))
}

func TestPlaceAndRepository(t *testing.T) {
	for _, c := range []struct{ asked, path, repository string }{
		{"/v2/pause/manifests/3.10.2?ns=firstlight.internal", "/v2/pause/manifests/3.10.2", "pause"},
		{"/v2/library/nginx/blobs/sha256:00?ns=registry.example", "/v2/registry.example/library/nginx/blobs/sha256:00", "registry.example/library/nginx"},
		{"/v2/?ns=registry.example", "/v2/", ""},
		{"/v2/a/blobs/uploads/7?ns=", "/v2/a/blobs/uploads/7", "a"},
		{"/v2/manifests/manifests/v1", "/v2/manifests/manifests/v1", "manifests"},
		{"/metrics?ns=registry.example", "/metrics", ""},
	} {
		u, err := url.Parse(c.asked)
		require.NoError(t, err)
		mapRepository(u)
		assert.Equal(t, c.path, u.Path, c.asked)
		assert.Equal(t, c.repository, repositoryOf(u.Path), c.asked)
	}
}

func TestBundleThatIsNone(t *testing.T) {
	dir := t.TempDir()
	_, err := New(Config{Layout: filepath.Join(dir, "absent"), Store: dir, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	for text, says := range map[string]string{
		`{`: "read image bundle",
		`{"manifests":[{"digest":"sha256:00","annotations":{"org.opencontainers.image.ref.name":"registry.example/x:1"}}]}`:           `image name "registry.example/x:1" is not firstlight.internal/NAME:TAG`,
		`{"manifests":[{"digest":"../../etc/passwd","annotations":{"org.opencontainers.image.ref.name":"firstlight.internal/x:1"}}]}`: "read image firstlight.internal/x:1",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "index.json"), []byte(text), 0o644))
		_, err := New(Config{Layout: dir, Store: dir, Log: slog.New(slog.DiscardHandler)})
		assert.ErrorContains(t, err, says)
	}
}

func TestRunServesByTLSUntilItsContextEnds(t *testing.T) {
	b := newFixture(t)
	// An address of its own and a port below the range the kernel hands out: nobody else has them.
	addr, other := netip.MustParseAddrPort("127.38.81.1:15000"), netip.MustParseAddrPort("127.38.82.1:15000")
	b.config.Addrs = []netip.Prefix{netip.MustParsePrefix("127.38.81.1/24"), netip.MustParsePrefix("127.38.82.1/24")}
	b.config.Port, b.config.Writers = addr.Port(), b.ca.Pool
	pair := b.ca.certificate("registry", addr.Addr(), other.Addr())
	b.config.Certificate = func() (tls.Certificate, error) { return pair, nil }
	s, err := New(b.config)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		image, err := remote.Image(reference(t, addr.String()+"/pause:3.10.2"), remote.WithTransport(b.client("")))
		if assert.NoError(c, err) {
			_, err = image.Digest()
			assert.NoError(c, err)
		}
	}, time.Minute, 20*time.Millisecond)
	response, err := (&http.Client{Transport: b.client("")}).Get("https://" + other.String() + AddressesPath)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	assert.Equal(t, "127.38.81.1/24\n127.38.82.1/24\n", string(text), "said at each address: all of them")
	var unknown x509.UnknownAuthorityError
	_, err = remote.Image(reference(t, addr.String()+"/pause:3.10.2"), remote.WithTransport(&http.Transport{TLSClientConfig: &tls.Config{RootCAs: newAuthority(t).Pool()}}))
	assert.ErrorAs(t, err, &unknown, "a client that knows another authority got an answer")
	cancel()
	require.NoError(t, <-ended)

	b.config.Addrs = append(b.config.Addrs, netip.MustParsePrefix("192.0.2.1/24"))
	s, err = New(b.config)
	require.NoError(t, err)
	for range 2 { // the ports of the others are free again
		assert.ErrorContains(t, s.Run(t.Context()), "listen for container images: listen tcp 192.0.2.1:15000")
	}
}
