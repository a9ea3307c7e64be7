// Package access says who asks and whether that one may, by the bootstrap cluster's own
// means: bearer tokens are reviewed by its API server, client certificates are those of the
// appliance's authority, and rights are RBAC's. Nothing here knows passwords or keeps users.
package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// ErrAnonymous is a request without, or with wrong, credentials.
var ErrAnonymous = errors.New("no valid credentials")

// User is who asks, as Kubernetes knows users.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// Authenticator says who asks. Its error wraps ErrAnonymous if that is the request's fault;
// any other means that it could not be found out.
type Authenticator interface {
	Authenticate(ctx context.Context, r *http.Request) (User, error)
}

// Request is what somebody wants to do: a verb on a resource, or on a path that is none.
type Request struct {
	Verb      string // get, list, create, update, patch or delete
	Group     string
	Resource  string
	Namespace string
	Name      string
	Path      string // instead of the four before
}

func (r Request) String() string {
	if r.Path != "" {
		return r.Verb + " " + r.Path
	}

	what := r.Resource
	if r.Name != "" {
		what += "/" + r.Name
	}

	return fmt.Sprintf("%s %s in %s", r.Verb, what, r.Namespace)
}

// Authorizer says whether a user may do something. An error means that it could not be
// found out, which is not a yes.
type Authorizer interface {
	Authorize(ctx context.Context, u User, r Request) (allowed bool, err error)
}

// Chain asks one authenticator after the other, until one knows the user.
type Chain []Authenticator

// Authenticate returns the first user found, or the last reason.
func (c Chain) Authenticate(ctx context.Context, r *http.Request) (User, error) {
	err := fmt.Errorf("%w: send a bearer token or a client certificate", ErrAnonymous)
	for _, a := range c {
		u, failed := a.Authenticate(ctx, r)
		if failed == nil {
			return u, nil
		}
		if !errors.Is(failed, errNone) {
			err = failed
		}
	}
	return User{}, err
}

// errNone is a request that has nothing that the authenticator knows.
var errNone = fmt.Errorf("%w: none of this kind", ErrAnonymous)

// CertificatePrefix is put before the common name of a client certificate. The appliance's
// authority is not Kubernetes': what it certifies must not be taken for a user or a group
// that Kubernetes made.
const CertificatePrefix = "appliance:"

// Certificates knows clients by the certificates that the TLS server has verified.
type Certificates struct{}

// Authenticate returns the user of the request's client certificate.
func (Certificates) Authenticate(_ context.Context, r *http.Request) (User, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return User{}, errNone
	}

	leaf := r.TLS.VerifiedChains[0][0]
	if leaf.Subject.CommonName == "" {
		return User{}, fmt.Errorf("%w: the client certificate has no common name", ErrAnonymous)
	}

	return User{Name: CertificatePrefix + leaf.Subject.CommonName, Groups: []string{"system:authenticated"}}, nil
}

// bearerToken is the token of a request; "" if there is none (RFC 6750 2.1; the word is of any
// case, RFC 9110 11.1).
func bearerToken(r *http.Request) string {
	word, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if !strings.EqualFold(word, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
