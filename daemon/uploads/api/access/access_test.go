package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
)

// apiServer reviews as told and counts what it is asked.
type apiServer struct {
	asked atomic.Int32
	down  atomic.Bool
	last  atomic.Value // authorizationv1.SubjectAccessReviewSpec
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked.Add(1)
	if s.down.Load() {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/apis/authentication.k8s.io/v1/tokenreviews":
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		review.Status.Authenticated = review.Spec.Token == "good"
		review.Status.User = authenticationv1.UserInfo{Username: "system:serviceaccount:alpha:uploader", UID: "1", Groups: []string{"system:authenticated"},
			Extra: map[string]authenticationv1.ExtraValue{"pod": {"p"}}}
		_ = json.NewEncoder(w).Encode(review)
	case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		var review authorizationv1.SubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		s.last.Store(review.Spec)
		a := review.Spec.ResourceAttributes
		review.Status.Allowed = a != nil && a.Verb == "get"
		review.Status.Denied = a != nil && a.Name == "denied"
		_ = json.NewEncoder(w).Encode(review)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func newKubernetes(t *testing.T) (*Kubernetes, *apiServer) {
	s := &apiServer{}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	k, err := NewKubernetes(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	require.NoError(t, err)
	return k, s
}

func with(authorization string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", authorization)
	return r
}

func TestTokensAreReviewed(t *testing.T) {
	k, s := newKubernetes(t)
	want := User{Name: "system:serviceaccount:alpha:uploader", UID: "1", Groups: []string{"system:authenticated"}, Extra: map[string][]string{"pod": {"p"}}}
	for _, header := range []string{"Bearer good", "bearer good", "BEARER  good "} {
		u, err := k.Authenticate(t.Context(), with(header))
		require.NoError(t, err, header)
		assert.Equal(t, want, u)
	}
	assert.Equal(t, int32(1), s.asked.Load(), "one answer does for a while")
	for _, header := range []string{"", "Bearer", "Bearer ", "Basic good", "good", "Bearer bad", "Bearer " + strings.Repeat("x", maxToken+1)} {
		_, err := k.Authenticate(t.Context(), with(header))
		assert.ErrorIs(t, err, ErrAnonymous, "%.20q", header)
	}
	asked := s.asked.Load()
	_, err := k.Authenticate(t.Context(), with("Bearer bad"))
	assert.ErrorIs(t, err, ErrAnonymous)
	assert.Equal(t, asked, s.asked.Load(), "a wrong one stays wrong for a while")
	k.wrong.now = func() time.Time { return time.Now().Add(answerTTL + time.Second) }
	_, err = k.Authenticate(t.Context(), with("Bearer bad"))
	assert.ErrorIs(t, err, ErrAnonymous)
	assert.Equal(t, asked+1, s.asked.Load(), "and is asked for again then")

	k.users.now = func() time.Time { return time.Now().Add(answerTTL + time.Second) }
	s.down.Store(true)
	_, err = k.Authenticate(t.Context(), with("Bearer good"))
	require.Error(t, err)
	assert.NotErrorIs(t, err, ErrAnonymous, "an API server that is down does not make the token wrong")
}

func TestRightsAreThoseOfTheAPIServer(t *testing.T) {
	k, s := newKubernetes(t)
	u := User{Name: "u", UID: "1", Groups: []string{"g"}, Extra: map[string][]string{"e": {"v"}}}
	get := Request{Verb: "get", Group: "artifact.firstlight.dev", Resource: "os_images", Namespace: "alpha", Name: "debian"}
	for range 2 {
		may, err := k.Authorize(t.Context(), u, get)
		require.NoError(t, err)
		assert.True(t, may)
	}
	assert.Equal(t, int32(1), s.asked.Load())
	assert.Equal(t, authorizationv1.SubjectAccessReviewSpec{User: "u", UID: "1", Groups: []string{"g"}, Extra: map[string]authorizationv1.ExtraValue{"e": {"v"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Group: "artifact.firstlight.dev", Resource: "os_images", Namespace: "alpha", Name: "debian"}}, s.last.Load())
	for _, other := range []Request{
		{Verb: "patch", Group: get.Group, Resource: get.Resource, Namespace: get.Namespace, Name: get.Name},
		{Verb: "get", Group: get.Group, Resource: get.Resource, Namespace: get.Namespace, Name: "denied"},
		{Verb: "get", Path: "/metrics"},
	} {
		for range 2 {
			asked := s.asked.Load()
			may, err := k.Authorize(t.Context(), u, other)
			require.NoError(t, err)
			assert.False(t, may, other)
			assert.Equal(t, asked+1, s.asked.Load(), "a no is asked for again: the right may just have been given")
		}
	}
	assert.Equal(t, &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}, s.last.Load().(authorizationv1.SubjectAccessReviewSpec).NonResourceAttributes)
	s.down.Store(true)
	may, err := k.Authorize(t.Context(), u, Request{Verb: "list", Group: get.Group, Resource: get.Resource, Namespace: get.Namespace})
	assert.Error(t, err)
	assert.False(t, may)
}

func TestCertificates(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	_, err := Certificates{}.Authenticate(t.Context(), r)
	assert.ErrorIs(t, err, ErrAnonymous, "no TLS")
	leaf := &x509.Certificate{Subject: pkix.Name{CommonName: "system:admin", Organization: []string{"system:masters"}}}
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
	_, err = Certificates{}.Authenticate(t.Context(), r)
	assert.ErrorIs(t, err, ErrAnonymous, "a certificate that nobody verified")
	r.TLS.VerifiedChains = [][]*x509.Certificate{{leaf}}
	u, err := Certificates{}.Authenticate(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, User{Name: "appliance:system:admin", Groups: []string{"system:authenticated"}}, u, "no group of Kubernetes' comes from it")
	leaf.Subject.CommonName = ""
	_, err = Certificates{}.Authenticate(t.Context(), r)
	assert.ErrorIs(t, err, ErrAnonymous)
}

func TestChainTakesTheFirstWhoKnows(t *testing.T) {
	k, s := newKubernetes(t)
	chain := Chain{Certificates{}, k}
	_, err := chain.Authenticate(t.Context(), httptest.NewRequest("GET", "/", nil))
	assert.ErrorIs(t, err, ErrAnonymous)
	assert.ErrorContains(t, err, "send a bearer token or a client certificate")
	_, err = chain.Authenticate(t.Context(), with("Bearer bad"))
	assert.ErrorContains(t, err, "does not know the token")
	u, err := chain.Authenticate(t.Context(), with("Bearer good"))
	require.NoError(t, err)
	assert.Equal(t, "system:serviceaccount:alpha:uploader", u.Name)
	s.down.Store(true)
	_, err = chain.Authenticate(t.Context(), with("Bearer other"))
	assert.NotErrorIs(t, err, ErrAnonymous)
}

func TestMemoryIsBounded(t *testing.T) {
	m := newMemory[string, bool](time.Hour)
	for i := range 10 * maxAnswers {
		m.put(fmt.Sprint(i), true)
	}
	assert.LessOrEqual(t, len(m.answers), maxAnswers)
	_, known := m.get(fmt.Sprint(10*maxAnswers - 1))
	assert.True(t, known)
}

// TestWrongTokensDelayNobody: a hundred machines bring tokens that nobody knows. Who was known before, and who comes
// for the first time with a right one, is answered.
func TestWrongTokensDelayNobody(t *testing.T) {
	k, s := newKubernetes(t)
	_, err := k.Authenticate(t.Context(), with("Bearer good"))
	require.NoError(t, err)
	k.users.now = func() time.Time { return time.Now().Add(answerTTL + time.Second) }
	k.strangers.Every = time.Hour // however long the test takes
	ctx, giveUp := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var tooMany atomic.Int32
	for sender := range 100 {
		all.Go(func() {
			for n := range 20 {
				r := with(fmt.Sprintf("Bearer wrong-%d-%d", sender, n))
				r.RemoteAddr = fmt.Sprintf("172.22.0.%d:1000", sender+100)
				if _, err := k.Authenticate(ctx, r); errors.Is(err, ErrTooMany) {
					tooMany.Add(1)
				}
			}
		})
	}
	require.Eventually(t, func() bool { return s.asked.Load() >= 100 }, time.Minute, time.Millisecond, "they are not asking")
	_, err = k.Authenticate(t.Context(), with("Bearer good"))
	assert.NoError(t, err, "who was known before")
	k.seen.now = func() time.Time { return time.Now().Add(tokenTTL + time.Second) }
	r := with("Bearer good")
	r.RemoteAddr = "172.22.0.66:1000"
	_, err = k.Authenticate(t.Context(), r)
	assert.NoError(t, err, "who comes for the first time")
	giveUp()
	all.Wait()
	assert.EqualValues(t, 100*(20-unknownBurst), tooMany.Load(), "of each address, those beyond its share")
	assert.LessOrEqual(t, s.asked.Load(), int32(100*unknownBurst+3))
}
