package bmc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/bmctrust"
)

func pins(t *testing.T) *bmctrust.Pins {
	return &bmctrust.Pins{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
}

// fakeRedfish is a BMC with TLS that remembers everything by which it could learn a password.
type fakeRedfish struct {
	*httptest.Server
	mu       sync.Mutex
	requests int
	secrets  []string
}

func (f *fakeRedfish) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	if auth := r.Header.Get("Authorization"); auth != "" {
		f.secrets = append(f.secrets, auth)
	}
	if r.Method != http.MethodGet {
		f.secrets = append(f.secrets, r.Method+" "+r.URL.Path)
	}
	fmt.Fprint(w, `{"PowerState": "Off"}`)
}

func (f *fakeRedfish) bmc(check site.CertificateCheck) site.BMC {
	b := asked("redfish://"+f.Listener.Addr().String()+"/redfish/v1/Systems/1", password)
	b.VerifyCertificate = check
	return b
}

// start begins to answer on an address ("": any) with a certificate.
func start(t *testing.T, address string, certificate tls.Certificate) *fakeRedfish {
	f := &fakeRedfish{}
	f.Server = httptest.NewUnstartedServer(f)
	if address != "" {
		require.NoError(t, f.Listener.Close())
		l, err := net.Listen("tcp", address)
		require.NoError(t, err)
		f.Listener = l
	}
	f.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	f.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	f.StartTLS()
	t.Cleanup(f.Close)
	return f
}

// issue makes a certificate for a name, by itself or by an authority.
func issue(t *testing.T, name string, by *tls.Certificate) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotAfter:     time.Now().Add(time.Hour),
		IsCA:         by == nil, BasicConstraintsValid: true,
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	}
	parent, signer := template, any(key)
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// TestPasswordsGoToTheBMCOfFirstContact: what answers with another certificate hears no password, neither by log-in nor
// by what else is asked, until a person accepts it.
func TestPasswordsGoToTheBMCOfFirstContact(t *testing.T) {
	real, other := issue(t, "idrac-1", nil), issue(t, "idrac-1", nil)
	dir := t.TempDir()
	client := func() Client { return Client{&bmctrust.Pins{Dir: dir, Log: slog.New(slog.DiscardHandler)}} } // as after a restart
	f := start(t, "", real)
	b := f.bmc(site.CheckPin)
	for range 2 {
		a := client().Login(t.Context(), b)
		require.Equal(t, OK, a.Verdict, a.Text)
	}
	address := f.Listener.Addr().String()
	f.Close()

	impostor := start(t, address, other)
	for range 2 {
		c := client()
		a := c.Login(t.Context(), b)
		assert.Equal(t, Changed, a.Verdict, a.Text)
		assert.Contains(t, a.Text, bmctrust.Fingerprint(real.Leaf))
		assert.Contains(t, a.Text, bmctrust.Fingerprint(other.Leaf))
		assert.Contains(t, a.Fix, "firstlightd bmc trust")
		_, err := c.BootMAC(t.Context(), b, func(string) bool { return false })
		assert.ErrorAs(t, err, new(bmctrust.Change))
	}
	assert.Zero(t, impostor.requests, "it heard a request")
	assert.Empty(t, impostor.secrets)

	_, err := client().Pins.Trust(b.Address.Endpoint(), bmctrust.Fingerprint(other.Leaf))
	require.NoError(t, err)
	a := client().Login(t.Context(), b)
	assert.Equal(t, OK, a.Verdict, a.Text)
	assert.Len(t, impostor.secrets, 1)
}

// TestNoPasswordBeforeTheRecord: power can go between the contact and the record; then nothing was told.
func TestNoPasswordBeforeTheRecord(t *testing.T) {
	f := start(t, "", issue(t, "idrac-1", nil))
	dir := t.TempDir() + "/hosts"
	require.NoError(t, os.WriteFile(dir, nil, 0o600)) // no record can be made
	p := &bmctrust.Pins{Dir: dir, Log: slog.New(slog.DiscardHandler)}
	a := Client{p}.Login(t.Context(), f.bmc(site.CheckPin))
	assert.Equal(t, Unfit, a.Verdict, a.Text)
	assert.Contains(t, a.Text, "cannot be recorded")
	assert.NotEmpty(t, a.Fix)
	assert.Zero(t, f.requests)

	require.NoError(t, os.Remove(dir))
	a = Client{&bmctrust.Pins{Dir: dir, Log: p.Log}}.Login(t.Context(), f.bmc(site.CheckPin))
	assert.Equal(t, OK, a.Verdict, a.Text)
}

func TestTheOtherChecks(t *testing.T) {
	authority := issue(t, "rack authority", nil)
	good, wrongName := start(t, "", issue(t, "127.0.0.1", &authority)), start(t, "", issue(t, "127.0.0.9", &authority))
	alone := start(t, "", issue(t, "127.0.0.1", nil))
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Leaf.Raw})
	site1 := pins(t)
	site1.CA = func() site.Certificates { return site.Certificates(text) }
	for name, c := range map[string]struct {
		pins  *bmctrust.Pins
		f     *fakeRedfish
		check site.CertificateCheck
		want  Verdict
	}{
		"ca, the site's authority":         {site1, good, site.CheckCA, OK},
		"ca, the authority is not known":   {pins(t), good, site.CheckCA, Unfit},
		"ca, a certificate for other name": {site1, wrongName, site.CheckCA, Unfit},
		"ca, a certificate of its own":     {site1, alone, site.CheckCA, Unfit},
		"none":                             {site1, alone, site.CheckNone, OK},
		"nothing said is pin":              {site1, alone, "", OK},
	} {
		c.f.requests, c.f.secrets = 0, nil
		a := Client{c.pins}.Login(t.Context(), c.f.bmc(c.check))
		assert.Equal(t, c.want, a.Verdict, "%s: %s", name, a.Text)
		assert.Equal(t, c.want == OK, len(c.f.secrets) == 1, name)
		if c.want != OK {
			assert.Zero(t, c.f.requests, name)
			assert.True(t, strings.Contains(a.Text, "not to be trusted") && strings.Contains(a.Fix, "bmc.ca"), a.Text+a.Fix)
		}
	}
}
