package page

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"html"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/coreos/go-oidc/v3/oidc/oidctest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
)

const (
	clientID     = "firstlight"
	clientSecret = "client-secret-7"
	keyID        = "key-1"
)

// testIssuer is an issuer of OpenID Connect at https://localhost:PORT, which for browsers is another site than 127.0.0.1.
// Keys and what it says of itself are oidctest's; the code flow with PKCE and renewal are here.
type testIssuer struct {
	*httptest.Server
	t    *testing.T
	ca   string // PEM
	key  *ecdsa.PrivateKey
	docs oidctest.Server

	mu      sync.Mutex
	asked   map[string]url.Values     // what was asked for, by code
	people  map[string]map[string]any // claims, by user
	users   map[string]string         // by code or refresh token
	renews  bool                      // it gives refresh tokens
	lasts   time.Duration             // how long a token is good
	forge   func(claims map[string]any) (key crypto.PrivateKey)
	refused int // requests for tokens
}

func newTestIssuer(t *testing.T) *testIssuer {
	i := &testIssuer{
		t: t, asked: map[string]url.Values{}, users: map[string]string{}, lasts: time.Hour,
		people: map[string]map[string]any{
			"vic": {"email": "vic@example.com", "email_verified": true, "groups": []string{"everybody"}},
			"ann": {"email": "ann@example.com", "email_verified": true, "groups": []string{"everybody", "ops"}},
			"eve": {"email": "eve@example.com", "email_verified": true, "groups": []string{"visitors", "firstlight:owner", "system:masters"}},
		},
	}
	i.key = newKey(t)
	i.docs = oidctest.Server{Algorithms: []string{oidc.ES256}, PublicKeys: []oidctest.PublicKey{
		{PublicKey: i.key.Public(), KeyID: keyID, Algorithm: oidc.ES256},
	}}
	mux := http.NewServeMux()
	mux.Handle("/", &i.docs)
	mux.HandleFunc("GET /auth", i.serveQuestion)
	mux.HandleFunc("POST /auth", i.serveAnswer)
	mux.HandleFunc("POST /token", i.serveToken)
	i.Server = httptest.NewUnstartedServer(mux)
	i.Server.TLS = i.newCertificate()
	i.Server.StartTLS()
	t.Cleanup(i.Server.Close)
	_, port, err := net.SplitHostPort(i.Server.Listener.Addr().String())
	require.NoError(t, err)
	i.Server.URL = "https://localhost:" + port
	i.docs.SetIssuer(i.Server.URL)
	return i
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func (i *testIssuer) newCertificate() *tls.Config {
	key := newKey(i.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "issuer"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(i.t, err)
	i.ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// site is a site that names the issuer.
func (i *testIssuer) site() *site.OIDC {
	return &site.OIDC{
		Issuer: site.URL(i.URL), ClientID: clientID, ClientSecret: site.NewSecret(clientSecret), CA: site.Certificates(i.ca),
		Scopes: []string{"email"}, UsernameClaim: "email", GroupsClaim: "groups",
		Roles: site.OIDCRoles{Viewer: []string{"everybody"}, Operator: []string{"ops"}, Owner: []string{"admins"}},
	}
}

// serveQuestion asks who somebody is.
func (i *testIssuer) serveQuestion(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	assert.Equal(i.t, []string{"code", clientID, "openid email", "S256"},
		[]string{q.Get("response_type"), q.Get("client_id"), q.Get("scope"), q.Get("code_challenge_method")})
	assert.NotEmpty(i.t, q.Get("state"))
	assert.NotEmpty(i.t, q.Get("nonce"))
	assert.Len(i.t, q.Get("code_challenge"), 43)
	fmt.Fprintf(w, `<!DOCTYPE html><html lang="en"><title>Issuer</title><form method="post" action="/auth?%s">`, html.EscapeString(r.URL.RawQuery))
	for user := range i.people {
		fmt.Fprintf(w, `<button name="user" value="%s">%[1]s</button>`, user)
	}
	fmt.Fprint(w, `</form></html>`)
}

// serveAnswer sends the browser back with a code.
func (i *testIssuer) serveAnswer(w http.ResponseWriter, r *http.Request) {
	q, code := r.URL.Query(), newSecret()
	i.mu.Lock()
	i.asked[code], i.users[code] = q, r.PostFormValue("user")
	i.mu.Unlock()
	back := url.Values{"code": {code}, "state": {q.Get("state")}}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusSeeOther)
}

// serveToken gives tokens for a code, once, or for a refresh token, once.
func (i *testIssuer) serveToken(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	refuse := func(why string) {
		i.refused++
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": why, "error_description": clientSecret})
	}
	id, secret, ok := r.BasicAuth()
	if !ok || id != clientID || secret != clientSecret {
		refuse("invalid_client")
		return
	}
	key := r.PostFormValue("code") + r.PostFormValue("refresh_token")
	user, asked := i.users[key], i.asked[key]
	delete(i.users, key)
	if user == "" {
		refuse("invalid_grant")
		return
	}
	if r.PostFormValue("grant_type") == "authorization_code" {
		sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) || asked.Get("redirect_uri") != r.PostFormValue("redirect_uri") {
			refuse("invalid_grant")
			return
		}
	}

	answer := map[string]any{"access_token": newSecret(), "token_type": "Bearer", "id_token": i.sign(user, asked.Get("nonce"), i.forge)}
	if i.renews {
		refresh := newSecret()
		i.users[refresh] = user
		answer["refresh_token"] = refresh
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// token is one of a user, changed by forge.
func (i *testIssuer) token(user string, forge func(claims map[string]any) crypto.PrivateKey) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.sign(user, "", forge)
}

func (i *testIssuer) sign(user, nonce string, forge func(claims map[string]any) crypto.PrivateKey) string {
	now := time.Now()
	claims := map[string]any{"iss": i.URL, "aud": clientID, "sub": "id-of-" + user, "iat": now.Unix(), "exp": now.Add(i.lasts).Unix()}
	maps.Copy(claims, i.people[user])
	if nonce != "" {
		claims["nonce"] = nonce
	}
	var key crypto.PrivateKey = i.key
	if forge != nil {
		if k := forge(claims); k != nil {
			key = k
		}
	}
	text, err := json.Marshal(claims)
	assert.NoError(i.t, err)
	return oidctest.SignIDToken(key, keyID, oidc.ES256, string(text))
}

// payloadOf is what a token says, whoever signed it.
func payloadOf(token string) (claims struct {
	Email  string
	Groups []string
}) {
	if parts := strings.Split(token, "."); len(parts) == 3 {
		text, _ := base64.RawURLEncoding.DecodeString(parts[1])
		_ = json.Unmarshal(text, &claims)
	}
	return claims
}
