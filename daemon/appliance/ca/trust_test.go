package ca

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// openssl reports whether OpenSSL takes a certificate for a purpose, by the letter of RFC 5280 as Python does by default
// since 3.13.
func openssl(t *testing.T, root, leaf []byte, options ...string) bool {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("needs openssl: ", err)
	}

	dir := t.TempDir()
	ca, file := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "leaf.crt")
	require.NoError(t, os.WriteFile(ca, root, 0o600))
	require.NoError(t, os.WriteFile(file, leaf, 0o600))
	args := append([]string{"verify", "-x509_strict", "-no-CApath", "-no-CAstore", "-CAfile", ca}, options...)
	out, err := exec.Command("openssl", append(args, file)...).CombinedOutput()
	t.Logf("openssl %v: %s", options, out)
	return err == nil
}

// TestACertificateIsForOnePurpose: what proves a server logs in nowhere, and the other way round.
func TestACertificateIsForOnePurpose(t *testing.T) {
	a, err := Open(t.TempDir(), time.Now, permitted...)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		names            Names
		isServer, isUser bool
	}{
		"server": {Names{Of: "ironic", Addrs: ironic().Addrs}, true, false},
		"client": {Names{Of: "registry-writer", Client: true}, false, true},
	} {
		pair, err := a.Sign(c.names)
		require.NoError(t, err)
		leaf, _, err := parsePair(pair.Cert, pair.Key)
		require.NoError(t, err)
		for usage, want := range map[x509.ExtKeyUsage]bool{
			x509.ExtKeyUsageServerAuth: c.isServer, x509.ExtKeyUsageClientAuth: c.isUser,
		} {
			_, err := leaf.Verify(x509.VerifyOptions{Roots: a.Pool(), KeyUsages: []x509.ExtKeyUsage{usage}})
			assert.Equal(t, want, err == nil, "%s: %v", name, err)
		}
		assert.Equal(t, c.isServer, openssl(t, a.PEM(), pair.Cert, "-purpose", "sslserver"), name)
		assert.Equal(t, c.isUser, openssl(t, a.PEM(), pair.Cert, "-purpose", "sslclient"), name)

		// Nor does it sign others.
		assert.False(t, leaf.IsCA || !leaf.BasicConstraintsValid || leaf.KeyUsage != x509.KeyUsageDigitalSignature, name)
		assert.Equal(t, c.isUser, leaf.Subject.CommonName != "", name)
	}
}

// TestAPairOfBothPurposesIsReplaced: earlier versions signed such.
func TestAPairOfBothPurposesIsReplaced(t *testing.T) {
	a, err := Open(t.TempDir(), at(day))
	require.NoError(t, err)
	client := Names{Of: "registry-writer", Client: true}
	first, _, err := a.Issue("writer", client)
	require.NoError(t, err)
	_, fresh, err := a.Issue("writer", client)
	require.NoError(t, err)
	assert.False(t, fresh)
	second, fresh, err := a.Issue("writer", Names{Of: "registry-writer"})
	require.NoError(t, err)
	assert.True(t, fresh)
	assert.NotEqual(t, first.Cert, second.Cert)
}

// TestBrowsersTakeACertificate: of all machines' clocks the appliance's may be ahead, and those of people are right.
func TestBrowsersTakeACertificate(t *testing.T) {
	dir := t.TempDir()
	a, err := Open(dir, at(day))
	require.NoError(t, err)
	for _, c := range []struct {
		when  time.Time
		fresh bool
	}{
		{day, true}, {day.AddDate(0, 1, 0), false},
		{day.AddDate(5, 0, 0), true}, // the clock is ahead
		{day, true},                  // and is set
		{day.AddDate(0, 0, 1), false},
	} {
		a.now = at(c.when)
		pair, fresh, err := a.Issue("page", Names{Of: "page", Addrs: ironic().Addrs, Browsers: true})
		require.NoError(t, err)
		assert.Equal(t, c.fresh, fresh, c.when)
		leaf, _, err := parsePair(pair.Cert, pair.Key)
		require.NoError(t, err)
		assert.LessOrEqual(t, leaf.NotAfter.Sub(leaf.NotBefore), 825*24*time.Hour, "Apple's browsers refuse it")
		assert.True(t, leaf.NotBefore.Before(c.when.AddDate(0, 0, -364)), "%s at %s", leaf.NotBefore, c.when)
	}

	// As earlier versions had it, and machines have it.
	for _, names := range []Names{{Of: "page", Addrs: ironic().Addrs}, ironic()} {
		pair, err := a.Sign(names)
		require.NoError(t, err)
		leaf, _, err := parsePair(pair.Cert, pair.Key)
		require.NoError(t, err)
		assert.Equal(t, notBefore, leaf.NotBefore.UTC(), "the clock of a machine without a battery is at its maker's day")
		require.NoError(t, os.WriteFile(filepath.Join(dir, "page.crt"), pair.Cert, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "page.key"), pair.Key, 0o600))
		_, fresh, err := a.Issue("page", Names{Of: "page", Addrs: ironic().Addrs, Browsers: true})
		require.NoError(t, err)
		assert.True(t, fresh)
	}
}

// permitted are names of an appliance that is called edge-7.
var permitted = []string{"localhost", "svc", "cluster.local", "edge-7"}

// TestAnAuthorityThatIsStolenSignsForNobodyElse: programs of each library refuse what its key signs for a name that is
// not the appliance's, and take what the appliance itself has signed, for its names and for any address.
func TestAnAuthorityThatIsStolenSignsForNobodyElse(t *testing.T) {
	a, err := Open(t.TempDir(), time.Now, permitted...)
	require.NoError(t, err)
	loopback := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}
	for _, c := range []struct {
		host  string
		names Names
		taken bool
	}{
		{"127.0.0.1", Names{Of: "registry", Addrs: loopback}, true},
		{"edge-7", Names{Of: "artifacts", DNS: []string{"edge-7", "localhost"}, Addrs: loopback}, true},
		{"127.0.0.1", Names{Of: "artifacts", DNS: []string{"edge-7", "localhost"}, Addrs: loopback}, true},
		{"hook.capi-system.svc", Names{Of: "capi", DNS: []string{"hook.capi-system.svc"}}, true},
		{"127.0.0.1", Names{Of: "x", DNS: []string{"www.example.org"}, Addrs: loopback}, false},
		{"www.example.org", Names{Of: "www.example.org", DNS: []string{"www.example.org"}}, false},
		{"localhost.example.org", Names{Of: "x", DNS: []string{"edge-7", "localhost.example.org"}}, false},
	} {
		pair := a.forge(t, c.names)
		t.Run(c.host, func(t *testing.T) {
			leaf, _, err := parsePair(pair.Cert, pair.Key)
			require.NoError(t, err)
			_, err = leaf.Verify(x509.VerifyOptions{DNSName: c.host, Roots: a.Pool()})
			assert.Equal(t, c.taken, err == nil, "Go: %v", err)
			assert.Equal(t, c.taken, openssl(t, a.PEM(), pair.Cert, "-purpose", "sslserver"), "OpenSSL")
			for program, err := range visit(t, a.PEM(), pair, c.host) {
				assert.Equal(t, c.taken, err == nil, "%s: %v", program, err)
			}
		})

		_, err := a.Sign(c.names)
		assert.Equal(t, c.taken, err == nil, "the appliance itself: %v", err)
	}
}

// forge signs without asking whether the authority may.
func (a *Authority) forge(t *testing.T, n Names) Pair {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: n.subject(), NotBefore: notBefore, NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: n.usage(), DNSNames: n.DNS, BasicConstraintsValid: true,
	}
	for _, addr := range n.Addrs {
		template.IPAddresses = append(template.IPAddresses, addr.AsSlice())
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	require.NoError(t, err)
	text, err := encodeKey(key)
	require.NoError(t, err)
	return Pair{encode("CERTIFICATE", der), text}
}

// visit has programs of Debian ask a server with a certificate, under a name, each with another library or in another
// way of its own; those that this machine has.
func visit(t *testing.T, root []byte, pair Pair, host string) map[string]error {
	t.Helper()
	served, err := tls.X509KeyPair(pair.Cert, pair.Key)
	require.NoError(t, err)
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") })
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that refuse
	s.TLS = &tls.Config{Certificates: []tls.Certificate{served}}
	s.StartTLS()
	defer s.Close()
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, root, 0o600))

	const python = `
import http.client, socket, ssl, sys
host, port, root = sys.argv[1:]
trust = ssl.create_default_context(cafile=root)
trust.verify_flags |= ssl.VERIFY_X509_STRICT
with trust.wrap_socket(socket.create_connection(("127.0.0.1", int(port))), server_hostname=host) as s:
    s.sendall(b"GET / HTTP/1.0\r\n\r\n")
    assert s.recv(4)
`
	results := map[string]error{}
	url, resolve := "https://"+net.JoinHostPort(host, port), host+":"+port+":127.0.0.1"
	for program, command := range map[string][]string{
		"curl":    {"curl", "--silent", "--show-error", "--cacert", file, "--resolve", resolve, url},
		"python3": {"python3", "-c", python, host, port, file},
		// It has GnuTLS, and cannot be told where a name is.
		"wget": {"wget", "--quiet", "--no-hsts", "--output-document=-", "--ca-certificate=" + file, url},
	} {
		if _, err := exec.LookPath(command[0]); err != nil || program == "wget" && host != "127.0.0.1" {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
		cancel()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		results[program] = err
	}
	return results
}
