package kubeconfig

import (
	"encoding/base64"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// TestAClusterLeadsNobodyElsewhere, whichever part of the appliance asks it.
func TestAClusterLeadsNobodyElsewhere(t *testing.T) {
	asked := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	t.Cleanup(other.Close)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			return
		}
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	config, err := Parse([]byte(`{clusters: [{name: a, cluster: {server: "` + server.URL + `", certificate-authority-data: ` +
		base64.StdEncoding.EncodeToString(authority) + `}}], users: [{name: a, user: {token: x}}],
contexts: [{name: a, context: {cluster: a, user: a}}], current-context: a}`))
	require.NoError(t, err)
	c, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	_, err = c.Get(server.URL + "/api/v1/nodes")
	require.ErrorContains(t, err, "it leads to another address")
	assert.False(t, asked)
	answer, err := c.Get(server.URL + "/version")
	require.NoError(t, err)
	answer.Body.Close()
}
