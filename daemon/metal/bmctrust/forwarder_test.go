package bmctrust

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/pxe/limit"
)

// ironic is a client like Ironic's: it speaks to everything by the forwarder, and trusts what that shows alone.
type ironic struct {
	forwarder *Forwarder
	client    *http.Client
}

func newIronic(t *testing.T, pins *Pins, bmc func(endpoint string) (*site.BMC, error)) ironic {
	shown := httptest.NewUnstartedServer(nil) // for its certificate, which is for 127.0.0.1
	shown.StartTLS()
	shown.Close()
	f := &Forwarder{Pins: pins, Log: slog.New(slog.DiscardHandler), BMC: bmc,
		Certificate: func(host string) (tls.Certificate, error) {
			assert.Equal(t, "127.0.0.1", host)
			return shown.TLS.Certificates[0], nil
		}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- (&limit.Server{Handler: f, Log: f.Log}).Serve(ctx, l) }()
	t.Cleanup(func() { cancel(); <-ended })
	roots := x509.NewCertPool()
	roots.AddCert(shown.Certificate())
	proxy := &url.URL{Scheme: "http", Host: l.Addr().String()}
	return ironic{f, &http.Client{Transport: &http.Transport{
		Proxy:             http.ProxyURL(proxy),
		TLSClientConfig:   &tls.Config{RootCAs: roots},
		DisableKeepAlives: true, // as Ironic's
	}}}
}

// login asks with a password.
func (i ironic) login(t *testing.T, address string) (string, error) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+address+"/redfish/v1/SessionService/Sessions", nil)
	require.NoError(t, err)
	r.SetBasicAuth("admin", "secret")
	answer, err := i.client.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// redfish answers on an address ("": any) with a certificate, and counts what it hears.
func redfish(t *testing.T, address string, certificate tls.Certificate) (*httptest.Server, *atomic.Int32) {
	heard := new(atomic.Int32)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard.Add(1)
		user, password, _ := r.BasicAuth()
		_, _ = io.WriteString(w, user+" "+password)
	}))
	if address != "" {
		require.NoError(t, s.Listener.Close())
		l, err := net.Listen("tcp", address)
		require.NoError(t, err)
		s.Listener = l
	}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, heard
}

// TestIronicTellsPasswordsToThePinnedBMC alone, although the certificate is expired and for another name; and says why
// in the words of the forwarder.
func TestIronicTellsPasswordsToThePinnedBMC(t *testing.T) {
	pins, first, second := newPins(t.TempDir()), certificate(t), certificate(t)
	i := newIronic(t, pins, func(endpoint string) (*site.BMC, error) {
		b := pinned("redfish://" + endpoint + "/redfish/v1/Systems/1")
		return &b, nil
	})
	s, heard := redfish(t, "", first)
	address := s.Listener.Addr().String()
	for range 2 {
		text, err := i.login(t, address)
		require.NoError(t, err)
		assert.Equal(t, "admin secret", text)
	}
	assert.EqualValues(t, 2, heard.Load())
	s.Close()

	_, heard = redfish(t, address, second)
	for range 2 {
		_, err := i.login(t, address)
		require.ErrorContains(t, err, Fingerprint(first.Leaf))
		require.ErrorContains(t, err, Fingerprint(second.Leaf))
	}
	assert.Zero(t, heard.Load(), "another machine heard a request")
	assert.EqualValues(t, 2, i.forwarder.Refused.Load())
	registry := prometheus.NewRegistry()
	i.forwarder.Register(registry)
	families, err := registry.Gather()
	require.NoError(t, err)
	assert.EqualValues(t, 1, families[0].Metric[0].GetGauge().GetValue(), families[0].GetName())
	assert.EqualValues(t, 2, families[1].Metric[0].GetCounter().GetValue(), families[1].GetName())

	_, err = pins.Trust(address, Fingerprint(second.Leaf))
	require.NoError(t, err)
	text, err := i.login(t, address)
	require.NoError(t, err)
	assert.Equal(t, "admin secret", text)
}

// A BMC that fails the site's own check, one that does not answer, and one that is not known yet hear nothing either.
func TestTheForwarderFailsClosed(t *testing.T) {
	s, heard := redfish(t, "", certificate(t))
	address := s.Listener.Addr().String()
	check, unknown := site.CheckCA, error(nil)
	i := newIronic(t, newPins(t.TempDir()), func(endpoint string) (*site.BMC, error) {
		return &site.BMC{Address: site.BMCAddress("redfish://" + endpoint), VerifyCertificate: check}, unknown
	})
	_, err := i.login(t, address)
	require.ErrorContains(t, err, "x509")
	unknown = errors.New("the hosts are not known yet")
	_, err = i.login(t, address)
	require.ErrorContains(t, err, "the hosts are not known yet")
	assert.Zero(t, heard.Load())

	check, unknown = site.CheckNone, nil
	text, err := i.login(t, address)
	require.NoError(t, err)
	assert.Equal(t, "admin secret", text)
	s.Close()
	_, err = i.login(t, address)
	require.ErrorContains(t, err, "connection refused")

	answer, err := i.client.Get("http://" + address + "/") // and it is no proxy for anything else
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	assert.Equal(t, http.StatusMethodNotAllowed, answer.StatusCode)
}

// What is no BMC, such as an agent, is spoken to as without the forwarder: its own certificate comes through.
func TestOthersArePassedOn(t *testing.T) {
	i := newIronic(t, newPins(t.TempDir()), func(string) (*site.BMC, error) { return nil, nil })
	agent := certificate(t)
	s, heard := redfish(t, "", agent)
	_, err := i.login(t, s.Listener.Addr().String())
	require.ErrorAs(t, err, new(*tls.CertificateVerificationError))
	assert.Zero(t, heard.Load())
	i.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{
		InsecureSkipVerify: true,
		VerifyConnection: func(c tls.ConnectionState) error {
			assert.Equal(t, Fingerprint(agent.Leaf), Fingerprint(c.PeerCertificates[0]))
			return nil
		},
	}
	text, err := i.login(t, s.Listener.Addr().String())
	require.NoError(t, err)
	assert.Equal(t, "admin secret", text)
}

// One side that ends ends the other: nothing stays open for a BMC that hangs.
func TestBothSidesEndTogether(t *testing.T) {
	hangs, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer hangs.Close()
	i := newIronic(t, newPins(t.TempDir()), func(string) (*site.BMC, error) { return nil, nil })
	proxy, err := i.client.Transport.(*http.Transport).Proxy(nil)
	require.NoError(t, err)
	near, err := net.Dial("tcp", proxy.Host)
	require.NoError(t, err)
	_, err = io.WriteString(near, "CONNECT "+hangs.Addr().String()+" HTTP/1.1\r\n\r\n")
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(near), nil)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, answer.StatusCode)
	far, err := hangs.Accept()
	require.NoError(t, err)
	require.NoError(t, near.Close())
	_, err = far.Read(make([]byte, 1))
	assert.ErrorIs(t, err, io.EOF)
	require.NoError(t, far.Close())
}

// TestTheLibraryOfIronic: what Ironic speaks to BMCs with takes proxy and authority from the environment of its pod. A
// BMC that is not the pinned one hears nothing from it, and it says why.
func TestTheLibraryOfIronic(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), "python3", "-c", "import requests").CombinedOutput(); err != nil {
		t.Skipf("python3 has no requests here: %s", out)
	}

	pins, first, second := newPins(t.TempDir()), certificate(t), certificate(t)
	authority, err := ca.Open(t.TempDir(), time.Now)
	require.NoError(t, err)
	i := newIronic(t, pins, func(endpoint string) (*site.BMC, error) {
		b := pinned("redfish://" + endpoint + "/redfish/v1/Systems/1")
		return &b, nil
	})
	i.forwarder.Certificate = func(host string) (tls.Certificate, error) {
		pair, err := authority.Sign(ca.Names{Of: "BMC forwarder", Addrs: []netip.Addr{netip.MustParseAddr(host)}})
		require.NoError(t, err)
		return tls.X509KeyPair(pair.Cert, pair.Key)
	}
	bundle := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(bundle, authority.PEM(), 0o600))
	proxy, err := i.client.Transport.(*http.Transport).Proxy(nil)
	require.NoError(t, err)
	ask := func(address, verify string, env ...string) (string, error) {
		// As sushy 5 does (connector.py): a session whose connections are not kept, verify with each request.
		const program = `
import requests, sys
s = requests.Session()
s.headers["Connection"] = "close"
s.auth = ("admin", "secret")
print(s.request("POST", sys.argv[1], json={}, verify=sys.argv[2] == "True", timeout=60).text)
`
		c := exec.CommandContext(t.Context(), "python3", "-W", "ignore", "-c", program, "https://"+address+"/redfish/v1/", verify)
		c.Env = append(os.Environ(), env...)
		out, err := c.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	pod := []string{"HTTPS_PROXY=http://" + proxy.Host, "REQUESTS_CA_BUNDLE=" + bundle, "NO_PROXY=localhost,172.22.0.1"}
	s, heard := redfish(t, "", first)
	address := s.Listener.Addr().String()
	for _, verify := range []string{"True", "False"} { // False: of nodes that Ironic had before
		out, err := ask(address, verify, pod...)
		require.NoError(t, err, out)
		assert.Equal(t, "admin secret", out)
	}

	before := heard.Load()
	out, err := ask(address, "True", "REQUESTS_CA_BUNDLE="+bundle, "HTTPS_PROXY=")
	assert.Error(t, err, "without the forwarder no BMC is told anything: %s", out)
	assert.Equal(t, before, heard.Load())
	s.Close()

	_, heard = redfish(t, address, second)
	for _, verify := range []string{"True", "False"} {
		out, err = ask(address, verify, pod...)
		require.Error(t, err)
		assert.Contains(t, out, Fingerprint(first.Leaf))
		assert.Contains(t, out, Fingerprint(second.Leaf))
	}
	assert.Zero(t, heard.Load())
}
