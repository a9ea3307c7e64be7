package sitesource

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
)

// TestADocumentInUseIsFollowedThoughANewOneMayNotHaveWhatItHas: it is read as firstlightd site replace reads it.
func TestADocumentInUseIsFollowedThoughANewOneMayNotHaveWhatItHas(t *testing.T) {
	r := newGitServer(t)
	old := "nodes:\n" + node(1) + "    os: {image: x.iso}\n"
	m := newMachine(t, r.document("rack-a", "first token", old))
	r.write("sites/rack-a/site.yaml", r.document("rack-a", "[redacted]", old+node(2)))
	r.push("another node")
	assert.Contains(t, m.look(), ": current")
	assert.Len(t, m.site().Nodes, 2)

	r.write("sites/rack-a/site.yaml", r.document("rack-a", "[redacted]", old+node(2)+"    os: {image: y.iso}\n"))
	r.push("a new one of those")
	assert.Contains(t, m.look(), `nodes[1].os.image: "y.iso" is started from a drive`)
	assert.Equal(t, status.SourceRefused, m.Status().State)
}

// TestWhatASourceWritesMovesNoCursor of the screen on which the reason is read.
func TestWhatASourceWritesMovesNoCursor(t *testing.T) {
	r := newGitServer(t)
	m := newMachine(t, r.document("rack-a", "first token", ""))
	r.write("sites/rack-a/site.yaml", r.document("rack-a", "[redacted]", `nodes: [{name: "\e[2J\u009b2J", os: {password: x}}]`))
	r.push("a name that clears a screen")
	said := m.look()
	assert.Contains(t, said, "has a secret in the clear at /nodes/[")
	assert.NotContains(t, said, "\x1b")
	assert.NotContains(t, said, "\u009b")

	m.Fetch = func(context.Context, Request) (Answer, error) {
		return Answer{Revision: "main@sha1:0", Refusal: strings.Repeat("x", 1<<20)}, nil
	}
	assert.Less(t, len(m.look()), 2*longestReason)
}

// TestARefusedRevisionIsFetchedOnce, however often the source is asked.
func TestARefusedRevisionIsFetchedOnce(t *testing.T) {
	r := newGitServer(t)
	m := newMachine(t, r.document("rack-a", "first token", ""))
	r.write("sites/rack-a/site.yaml", r.document("rack-a", "[redacted]", ""))
	good := r.push("as it is")
	require.Contains(t, m.look(), ": current")

	r.write("sites/rack-a/site.yaml", "name: rack-b\n")
	bad := r.push("another site")
	var known []string
	fetch := m.Fetch
	m.Fetch = func(ctx context.Context, q Request) (Answer, error) {
		known = append(known, q.Known)
		return fetch(ctx, q)
	}
	for range 3 {
		require.Contains(t, m.look(), "name: this appliance is of site rack-a")
	}
	assert.Equal(t, []string{"main@sha1:" + good, "main@sha1:" + bad, "main@sha1:" + bad}, known)

	r.git("push", "--quiet", "--force", "origin", good+":main")
	require.Contains(t, m.look(), ": current")
	require.Contains(t, m.look(), ": current")
	assert.Equal(t, "main@sha1:"+good, known[len(known)-1])

	r.git("reset", "--quiet", "--hard", good)
	r.git("commit", "--quiet", "--amend", "--message", "another history")
	r.push("on another history")
	require.Contains(t, m.look(), "history was rewritten")
	require.NoError(t, Forget(m.Path))
	m.Fetch = func(context.Context, Request) (Answer, error) { return Answer{}, errors.New("no route to host") }
	require.Contains(t, m.look(), ": lost")
	m.Fetch = fetch
	require.Contains(t, m.look(), ": current", "it was forgotten, though the source was silent then")
}

// TestWhatWaitsForTheAPIIsTriedSoon, though the source is asked once a day.
func TestWhatWaitsForTheAPIIsTriedSoon(t *testing.T) {
	m := newMachine(t, "name: rack-a\nappliance: {follow: {interval: 24h, git: {url: https://git.example/a.git}}}\n")
	m.Fetch = func(context.Context, Request) (Answer, error) {
		return Answer{Revision: "main@sha1:1", Files: map[string][]byte{"edge.yaml": []byte(provisioning)}}, nil
	}
	m.refuses = errNoAPI
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx, func() bool { return true }) }()
		synctest.Wait()
		assert.Equal(t, errNoAPI.Error(), m.Status().Error)
		m.refuses = nil
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		assert.Equal(t, status.SourceCurrent, m.Status().State)
		end()
		assert.NoError(t, <-ended)
	})
}

// TestAnAuthorityIsInPlaceOfThePublicOnes: whom one of those certifies for the host's name is not the repository's server.
func TestAnAuthorityIsInPlaceOfThePublicOnes(t *testing.T) {
	r := newGitServer(t)
	public := filepath.Join(t.TempDir(), "public.pem")
	require.NoError(t, os.Chmod(filepath.Dir(filepath.Dir(public)), 0o755), "nobody reads it")
	require.NoError(t, os.WriteFile(public, []byte(r.ca), 0o644))
	t.Setenv("SSL_CERT_FILE", public)
	q := Request{Git: &Git{URL: r.url, Branch: "main", Username: "git", Password: "first token"}}
	r.write("site.yaml", "name: rack-a\n")
	r.push("a site")
	_, err := fetchInAProcess(t.Context(), q)
	require.NoError(t, err)

	q.Git.CA = newAuthority(t)
	_, err = fetchInAProcess(t.Context(), q)
	require.ErrorContains(t, err, "certificate signed by unknown authority")
	q.Git.CA = r.ca
	_, err = fetchInAProcess(t.Context(), q)
	require.NoError(t, err)
}

// newAuthority is the certificate of another authority than that of test servers.
func newAuthority(t *testing.T) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "owner"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
