package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/pxe/limit"
)

// ErrTooMany is a token that was not looked at, because its sender's address brought too many unknown ones.
var ErrTooMany = errors.New("too many unknown tokens from this address; wait a few seconds")

// How many unknown tokens one address may have looked at. All addresses of a /24 together stay below reviewQPS, and
// the first ones of all of them are looked at within askTime.
const (
	unknownEvery = 6 * time.Second
	unknownBurst = 8
)

// How long an answer of the API server is good for. A right that is taken away is gone after
// so long; a token that was revoked, too. A wrong one stays wrong for so long.
const answerTTL = 10 * time.Second

// tokenTTL is how long a token that was right counts as one that is worth a question, whatever strangers ask.
const tokenTTL = 24 * time.Hour

// Questions per second to the API server: for those who were known before, and for tokens that nobody has seen.
const (
	knownQPS  = 50
	reviewQPS = 200
)

// askTime bounds one question.
const askTime = 15 * time.Second

// maxToken is in octets; tokens of service accounts have about a thousand.
const maxToken = 16 << 10

// Kubernetes is the API server as authenticator and authorizer. Requests for both need the
// rights of the ClusterRole system:auth-delegator.
type Kubernetes struct {
	tokens  authenticationclient.TokenReviewInterface // for tokens that were right before
	unknown authenticationclient.TokenReviewInterface // for others, which must not delay those
	rights  authorizationclient.SubjectAccessReviewInterface
	users   *answerCache[[sha256.Size]byte, User]
	seen    *answerCache[[sha256.Size]byte, bool] // tokens that were right
	wrong   *answerCache[[sha256.Size]byte, bool]
	may     *answerCache[string, bool]

	strangers limit.Senders
}

// NewKubernetes returns a client; no request is made.
func NewKubernetes(c *rest.Config) (*Kubernetes, error) {
	limited := func(qps float32) *rest.Config {
		c := rest.CopyConfig(c)
		c.QPS, c.Burst = qps, 2*int(qps)
		return c
	}
	tokens, err := authenticationclient.NewForConfig(limited(knownQPS))
	if err != nil {
		return nil, fmt.Errorf("make client for token reviews: %w", err)
	}

	unknown, err := authenticationclient.NewForConfig(limited(reviewQPS))
	if err != nil {
		return nil, fmt.Errorf("make client for reviews of unknown tokens: %w", err)
	}

	rights, err := authorizationclient.NewForConfig(limited(knownQPS))
	if err != nil {
		return nil, fmt.Errorf("make client for access reviews: %w", err)
	}

	return &Kubernetes{
		tokens:  tokens.TokenReviews(),
		unknown: unknown.TokenReviews(),
		rights:  rights.SubjectAccessReviews(),
		users:   newMemory[[sha256.Size]byte, User](answerTTL),
		seen:    newMemory[[sha256.Size]byte, bool](tokenTTL),
		wrong:   newMemory[[sha256.Size]byte, bool](answerTTL),
		may:     newMemory[string, bool](answerTTL),

		strangers: limit.Senders{Every: unknownEvery, Burst: unknownBurst},
	}, nil
}

// Authenticate has the request's bearer token reviewed.
func (k *Kubernetes) Authenticate(ctx context.Context, r *http.Request) (User, error) {
	token := bearerToken(r)
	if token == "" {
		return User{}, errNone
	}
	if len(token) > maxToken {
		return User{}, fmt.Errorf("%w: the token has %d bytes", ErrAnonymous, len(token))
	}

	key := sha256.Sum256([]byte(token))
	if u, known := k.users.get(key); known {
		return u, nil
	}
	if _, known := k.wrong.get(key); known {
		return User{}, errWrong
	}

	reviews := k.tokens
	if _, seen := k.seen.get(key); !seen {
		if reviews = k.unknown; !k.strangers.Allow(r) {
			return User{}, ErrTooMany
		}
	}

	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	review, err := reviews.Create(
		ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}},
		metav1.CreateOptions{},
	)
	if err != nil {
		return User{}, fmt.Errorf("have the token reviewed: %w", err)
	}
	if !review.Status.Authenticated {
		k.wrong.put(key, true)
		return User{}, errWrong
	}

	said := review.Status.User
	u := User{Name: said.Username, UID: said.UID, Groups: said.Groups, Extra: map[string][]string{}}
	for name, values := range said.Extra {
		u.Extra[name] = values
	}

	k.users.put(key, u)
	k.seen.put(key, true)
	return u, nil
}

var errWrong = fmt.Errorf("%w: the API server does not know the token, or it has expired", ErrAnonymous)

// Authorize asks whether RBAC allows it.
func (k *Kubernetes) Authorize(ctx context.Context, u User, r Request) (bool, error) {
	key := fmt.Sprintf(
		"%q", []any{u.Name, u.UID, u.Groups, u.Extra, r.Verb, r.Group, r.Resource, r.Namespace, r.Name, r.Path},
	)
	if may, known := k.may.get(key); known {
		return may, nil
	}

	spec := authorizationv1.SubjectAccessReviewSpec{
		User:   u.Name,
		UID:    u.UID,
		Groups: u.Groups,
		Extra:  map[string]authorizationv1.ExtraValue{},
	}
	for name, values := range u.Extra {
		spec.Extra[name] = values
	}

	if r.Path != "" {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: r.Path, Verb: r.Verb}
	} else {
		spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Verb:      r.Verb,
			Group:     r.Group,
			Resource:  r.Resource,
			Namespace: r.Namespace,
			Name:      r.Name,
		}
	}

	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	review, err := k.rights.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether %s may %s: %w", u.Name, r, err)
	}

	may := review.Status.Allowed && !review.Status.Denied
	if may {
		k.may.put(key, may)
	}

	return may, nil
}
