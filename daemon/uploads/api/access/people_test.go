package access

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestThePageAloneNamesPeople: whoever else sends its headers is who its certificate says.
func TestThePageAloneNamesPeople(t *testing.T) {
	ask := func(name string, user, group []string) (User, error) {
		r := httptest.NewRequest("GET", "/", nil)
		leaf := &x509.Certificate{Subject: pkix.Name{CommonName: name}}
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}
		r.Header = http.Header{HeaderUser: user, HeaderGroup: group}
		return Chain{People{}, Certificates{}}.Authenticate(t.Context(), r)
	}

	ann, operator := []string{"firstlight:ann@laptop"}, []string{"firstlight:operator"}
	u, err := ask(PageClient, ann, operator)
	require.NoError(t, err)
	assert.Equal(t, User{Name: ann[0], Groups: []string{operator[0], "system:authenticated"}}, u)

	for name, c := range map[string]struct {
		of          string
		user, group []string
	}{
		"another certificate":   {"someone", ann, operator},
		"a group of Kubernetes": {PageClient, ann, []string{"system:masters"}},
		"a user of Kubernetes":  {PageClient, []string{"kubernetes-admin"}, operator},
		"two groups":            {PageClient, ann, []string{operator[0], "system:masters"}},
		"nobody":                {PageClient, nil, nil},
	} {
		u, err := ask(c.of, c.user, c.group)
		require.NoError(t, err, name)
		assert.Equal(t, User{Name: CertificatePrefix + c.of, Groups: []string{"system:authenticated"}}, u, name)
	}

	r := httptest.NewRequest("GET", "/", nil)
	r.Header = http.Header{HeaderUser: ann, HeaderGroup: operator}
	_, err = People{}.Authenticate(t.Context(), r)
	assert.ErrorIs(t, err, ErrAnonymous, "no certificate")
}
