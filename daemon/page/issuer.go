package page

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/kube"
)

const (
	// issuerTimeout is how long an issuer may take for one log-in or renewal. A person waits for it.
	issuerTimeout = 15 * time.Second
	// maxIssuerAnswer is the largest answer of an issuer that is read, in bytes.
	maxIssuerAnswer = 1 << 20
	// maxLogText is how much of an error goes to the log, in bytes.
	maxLogText = 300
	// maxIssuerCalls is how many log-ins and renewals are under way at once.
	maxIssuerCalls = 8
)

var (
	errIssuerSilent  = errors.New("it does not answer, or not as an issuer does")
	errIssuerRefuses = errors.New("it refuses the log-in")
	errToken         = errors.New("its token is not one for this log-in: of another client, too old, or forged")
	errNoRole        = errors.New("the appliance's API server does not accept its token: none of your groups has a role in " +
		"appliance.oidc.roles of site.yaml, or the API server has not followed the site yet, which takes a minute")
)

// issuers asks the site's issuer of OpenID Connect. It is asked only when somebody logs in by it, and when such a session
// is renewed.
type issuers struct {
	api   func() (*rest.Config, error)
	calls chan struct{} // a place for each

	mu       sync.Mutex
	of       *site.OIDC
	found    *oidc.Provider // of it; nil until it has answered
	foundFor *http.Client
}

func newIssuers(api func() (*rest.Config, error)) *issuers {
	return &issuers{api: api, calls: make(chan struct{}, maxIssuerCalls)}
}

// grant is what an issuer has said of a person.
type grant struct {
	of      *site.OIDC // the issuer
	person  Person
	subject string    // the issuer's own name of the person
	expires time.Time // of the token
	refresh string    // by which another token is asked for; "": none can be
}

// attempt is one log-in by an issuer. Its secret is in a cookie of the browser that began it and nowhere else; state,
// nonce and verifier follow from it and from the issuer, so that what one issuer was asked is never told another one
// (RFC 9700, section 4.4).
type attempt struct {
	secret string
	of     *site.OIDC
}

func (a attempt) derive(purpose string) string {
	of := strings.Join([]string{purpose, string(a.of.Issuer), a.of.ClientID, a.secret}, "\x00")
	sum := sha256.Sum256([]byte(of))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func (a attempt) state() string    { return a.derive("state") }
func (a attempt) nonce() string    { return a.derive("nonce") }
func (a attempt) verifier() string { return a.derive("verifier") } // of PKCE, RFC 7636: 43 characters

// enter takes a place for a question to an issuer, and returns what gives it back.
func (i *issuers) enter() (leave func(), err error) {
	select {
	case i.calls <- struct{}{}:
		return func() { <-i.calls }, nil
	default:
		return nil, fmt.Errorf("%w: too many log-ins are under way", errIssuerSilent)
	}
}

// discover is what an issuer says of itself, asked once.
func (i *issuers) discover(ctx context.Context, o *site.OIDC) (*oidc.Provider, *http.Client, error) {
	i.mu.Lock()
	found, client := i.found, i.foundFor
	isKnown := found != nil && reflect.DeepEqual(i.of, o)
	i.mu.Unlock()
	if isKnown {
		return found, client, nil
	}

	client, err := newIssuerClient(o)
	if err != nil {
		return nil, nil, err
	}
	found, err = oidc.NewProvider(oidc.ClientContext(ctx, client), string(o.Issuer))
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errIssuerSilent, err)
	}

	i.mu.Lock()
	defer i.mu.Unlock()
	i.of, i.found, i.foundFor = o, found, client
	return found, client, nil
}

// newIssuerClient reads from an issuer by TLS alone, and not more than an issuer has to say.
func newIssuerClient(o *site.OIDC) (*http.Client, error) {
	to := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CA != "" {
		to.RootCAs = x509.NewCertPool()
		if !to.RootCAs.AppendCertsFromPEM([]byte(o.CA)) {
			return nil, errors.New("appliance.oidc.ca has no certificate")
		}
	}
	return &http.Client{
		Timeout: issuerTimeout,
		Transport: issuerTransport{&http.Transport{
			TLSClientConfig: to, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute, MaxIdleConns: 2,
		}},
	}, nil
}

type issuerTransport struct{ base http.RoundTripper }

func (t issuerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return nil, errors.New("an issuer is asked by https alone")
	}
	answer, err := t.base.RoundTrip(r)
	if err == nil {
		answer.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(answer.Body, maxIssuerAnswer), answer.Body}
	}
	return answer, err
}

// newOAuth is the client of an issuer, to which browsers return at redirect.
func newOAuth(o *site.OIDC, p *oidc.Provider, redirect string) *oauth2.Config {
	scopes := []string{oidc.ScopeOpenID}
	for _, s := range o.Scopes {
		if !slices.Contains(scopes, s) {
			scopes = append(scopes, s)
		}
	}
	to := p.Endpoint()
	to.AuthStyle = authStyle(o, p)
	return &oauth2.Config{
		ClientID:     o.ClientID,
		ClientSecret: o.ClientSecret.Reveal(),
		Endpoint:     to,
		RedirectURL:  redirect,
		Scopes:       scopes,
	}
}

// authStyle is how a client proves who it is: by what the issuer says that it takes (OpenID Connect Discovery, section 3),
// not by trying, which would use a code twice.
func authStyle(o *site.OIDC, p *oidc.Provider) oauth2.AuthStyle {
	var takes struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	_ = p.Claims(&takes) // without it, the standard's default holds
	if o.ClientSecret.IsZero() || len(takes.Methods) > 0 && !slices.Contains(takes.Methods, "client_secret_basic") {
		return oauth2.AuthStyleInParams
	}
	return oauth2.AuthStyleInHeader
}

// begin is where a browser is sent to log in.
func (i *issuers) begin(ctx context.Context, redirect string, a attempt) (to string, err error) {
	leave, err := i.enter()
	if err != nil {
		return "", err
	}
	defer leave()

	p, _, err := i.discover(ctx, a.of)
	if err != nil {
		return "", err
	}
	to = newOAuth(a.of, p, redirect).AuthCodeURL(a.state(), oidc.Nonce(a.nonce()), oauth2.S256ChallengeOption(a.verifier()))
	if u, err := url.Parse(to); err != nil || u.Scheme != "https" {
		return "", fmt.Errorf("%w: its authorization_endpoint is no https address", errIssuerSilent)
	}
	return to, nil
}

// finish is what the issuer says of the person who came back with a code.
func (i *issuers) finish(ctx context.Context, redirect string, a attempt, code string) (*grant, error) {
	leave, err := i.enter()
	if err != nil {
		return nil, err
	}
	defer leave()

	p, client, err := i.discover(ctx, a.of)
	if err != nil {
		return nil, err
	}
	ctx = oidc.ClientContext(ctx, client)
	token, err := newOAuth(a.of, p, redirect).Exchange(ctx, code, oauth2.VerifierOption(a.verifier()))
	if err != nil {
		return nil, describeTokenError(err)
	}
	return i.check(ctx, a.of, p, token, func(t *oidc.IDToken) bool { return isSame(t.Nonce, a.nonce()) })
}

// renew is what the issuer says of a person now. It must be the same person with the same role.
func (i *issuers) renew(ctx context.Context, g *grant) (*grant, error) {
	leave, err := i.enter()
	if err != nil {
		return nil, err
	}
	defer leave()

	p, client, err := i.discover(ctx, g.of)
	if err != nil {
		return nil, err
	}
	ctx = oidc.ClientContext(ctx, client)
	token, err := newOAuth(g.of, p, "").TokenSource(ctx, &oauth2.Token{RefreshToken: g.refresh}).Token()
	if err != nil {
		return nil, describeTokenError(err)
	}
	now, err := i.check(ctx, g.of, p, token, func(t *oidc.IDToken) bool { return t.Subject == g.subject })
	switch {
	case err != nil:
		return nil, err
	case now.person != g.person:
		return nil, fmt.Errorf("%w: it is of another name or role than before", errToken)
	}
	return now, nil
}

// check verifies a token, and asks the API server who its person is: it decides that for kubectl, too.
func (i *issuers) check(
	ctx context.Context, o *site.OIDC, p *oidc.Provider, token *oauth2.Token, isOurs func(*oidc.IDToken) bool,
) (*grant, error) {
	raw, _ := token.Extra("id_token").(string)
	if raw == "" {
		return nil, fmt.Errorf("%w: it gave no ID token", errIssuerRefuses)
	}
	verified, err := p.Verifier(&oidc.Config{ClientID: o.ClientID}).Verify(ctx, raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errToken, err)
	case !isOurs(verified):
		return nil, fmt.Errorf("%w: its nonce or subject is another one", errToken)
	}

	by, err := i.whoIs(ctx, o, raw)
	if err != nil {
		return nil, err
	}
	return &grant{of: o, person: by, subject: verified.Subject, expires: verified.Expiry, refresh: token.RefreshToken}, nil
}

// whoIs asks the API server as the bearer of a token of an issuer.
func (i *issuers) whoIs(ctx context.Context, o *site.OIDC, token string) (Person, error) {
	admin, err := i.api()
	if err != nil {
		return Person{}, fmt.Errorf("%w: %w", errNoAPI, err)
	}
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken, config.Timeout = token, apiTimeout
	c, err := authenticationclient.NewForConfig(config)
	if err != nil {
		return Person{}, fmt.Errorf("make client: %w", err)
	}

	review, err := c.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	switch {
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
		return Person{}, errNoRole
	case err != nil:
		return Person{}, describeAPIError(err)
	}
	return newIssuedPerson(o, review.Status.UserInfo.Username, review.Status.UserInfo.Groups)
}

// newIssuedPerson is who has a name and groups in the API, if that is somebody whom an issuer knows. Of several roles it
// is the highest.
func newIssuedPerson(o *site.OIDC, user string, groups []string) (Person, error) {
	name, isIssued := strings.CutPrefix(user, kube.OIDCPrefix)
	if !isIssued || name == "" {
		return Person{}, fmt.Errorf("%w: it is of %q, whom no issuer knows", errToken, user)
	}
	for _, r := range slices.Backward(Roles()) {
		if slices.ContainsFunc(r.groups(o), func(g string) bool { return slices.Contains(groups, g) }) {
			return Person{strings.TrimPrefix(user, kube.PersonPrefix), r}, nil
		}
	}
	return Person{}, errNoRole
}

// describeTokenError tells a refusal of the issuer from its silence. What the issuer wrote beside its code is left out:
// it may be anything.
func describeTokenError(err error) error {
	var refused *oauth2.RetrieveError
	if errors.As(err, &refused) && refused.ErrorCode != "" {
		return fmt.Errorf("%w: %s", errIssuerRefuses, cleanCode(refused.ErrorCode))
	} else if errors.As(err, &refused) {
		code := refused.Response.StatusCode
		return fmt.Errorf("%w: %d %s", errIssuerRefuses, code, http.StatusText(code))
	}
	return fmt.Errorf("%w: %w", errIssuerSilent, err)
}

// logText is an error for the log. What an issuer answered may be in it, all of a page.
func logText(err error) string { return excerpt.Start(excerpt.Line(err.Error()), maxLogText) }

// cleanCode is an error code of OAuth (RFC 6749, section 5.2), if it is written like one.
func cleanCode(code string) string {
	if len(code) > 40 || strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return "error"
	}
	return code
}
