package multus

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

func TestWhatThePluginAsksOfTheAPI(t *testing.T) {
	var written string
	refuse := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"blue","name":"web","uid":"u"}}`
		switch what := r.Method + " " + r.URL.Path; {
		case refuse:
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`)
		case what == "GET /api/v1/namespaces/blue/pods/web":
			fmt.Fprint(w, pod)
		case what == "PATCH /api/v1/namespaces/blue/pods/web/status":
			text, _ := io.ReadAll(r.Body)
			written = r.Header.Get("Content-Type") + " " + string(text)
			fmt.Fprint(w, pod)
		case what == "GET /apis/k8s.cni.cncf.io/v1/namespaces/blue/network-attachment-definitions/a":
			fmt.Fprint(w, `{"apiVersion":"k8s.cni.cncf.io/v1","kind":"NetworkAttachmentDefinition","metadata":{"name":"a","annotations":{"k8s.v1.cni.cncf.io/resourceName":"intel.com/nic"}},"spec":{"config":"{}"}}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","message":"not found","reason":"NotFound","code":404}`)
		}
	}))
	defer server.Close()

	api, err := newClient(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	pod, err := api.Pod(t.Context(), "blue", "web")
	require.NoError(t, err)
	definition, err := api.Definition(t.Context(), "blue", "a")
	require.NoError(t, err)
	assert.Equal(t, Definition{Config: "{}", Resource: "intel.com/nic"}, definition)
	_, err = api.Definition(t.Context(), "blue", "b")
	assert.EqualError(t, err, "NetworkAttachmentDefinition blue/b does not exist; create it, or take it out of the pod's annotation")

	require.NoError(t, api.WriteStatus(t.Context(), pod, []NetworkStatus{{Name: "x"}}))
	assert.Equal(t, `application/merge-patch+json {"metadata":{"annotations":{"k8s.v1.cni.cncf.io/network-status":`+
		`"[\n    {\n        \"name\": \"x\",\n        \"dns\": {}\n    }\n]"},"uid":"u"}}`, written)

	refuse = true
	_, err = api.Pod(t.Context(), "blue", "web")
	assert.ErrorContains(t, err, "read the pod: Unauthorized; the pod multus of this node in kube-system renews the plugin's token: "+
		"if there is none because the add-on was removed, remove /etc/cni/net.d/00-multus.conflist on the node")
}
