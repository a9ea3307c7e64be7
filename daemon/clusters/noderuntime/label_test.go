package noderuntime

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/clusters/noderuntime/features"
)

// TestFeaturesGoToTheNode: what rules and other programs say of a node is asked for, and written in such an order that a
// resource which is there is listed.
func TestFeaturesGoToTheNode(t *testing.T) {
	var asked []string
	node := `{"metadata":{"name":"a","annotations":{"nfd.node.kubernetes.io/extended-resources":"x.example/old"}},"status":{"capacity":{"x.example/old":"1","cpu":"8"}}}`
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := node
		switch r.URL.Path {
		case "/apis/nfd.k8s-sigs.io/v1alpha1/nodefeaturerules":
			answer = `{"items":[{"metadata":{"name":"r"},"spec":{"rules":[{"name":"x","extendedResources":{"x.example/new":"2"},
				"labels":{"x.example/b":"1"},"matchFeatures":[{"feature":"card.kinds","matchExpressions":{"fast":{"op":"Exists"}}}]},
				{"name":"y","labelsTemplate":"z"}]}}]}`
		case "/apis/nfd.k8s-sigs.io/v1alpha1/nodefeatures":
			answer = `{"items":[{"spec":{"labels":{"x.example/a":"1"},"features":{"flags":{"card.kinds":{"elements":{"fast":{}}}}}}}]}`
		}
		query, _, _ := strings.Cut(r.URL.RequestURI(), "?") // an empty query is none
		asked = append(asked, r.Method+" "+query+" "+r.URL.Query().Get("labelSelector"))
		if r.Method == http.MethodPatch {
			assert.Equal(t, "application/merge-patch+json", r.Header.Get("Content-Type"))
			var change map[string]json.RawMessage
			assert.NoError(t, json.NewDecoder(r.Body).Decode(&change))
			for part, text := range change {
				asked = append(asked, part+": "+string(text))
			}
		}
		_, _ = w.Write([]byte(answer))
	}))
	defer s.Close()
	n := &nodes{base: s.URL, client: s.Client(), token: func() (string, error) { return "secret", nil }}

	machine := features.Machine{Root: fstest.MapFS{}}
	found, refused, err := n.applyRules(t.Context(), "a", machine, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{`NodeFeatureRule r: rule "y": labelsTemplate is not offered; write labels`}, refused)
	assert.Equal(t, map[string]string{"x.example/a": "1", "x.example/b": "1"}, found.Labels)

	changed, err := n.label(t.Context(), "a", found)
	require.NoError(t, err)
	assert.True(t, changed)
	assert.Equal(t, []string{
		"GET /apis/nfd.k8s-sigs.io/v1alpha1/nodefeaturerules ",
		"GET /apis/nfd.k8s-sigs.io/v1alpha1/nodefeatures nfd.node.kubernetes.io/node-name=a",
		"GET /api/v1/nodes/a ",
		"PATCH /api/v1/nodes/a/status ",
		`status: {"allocatable":{"x.example/old":null},"capacity":{"x.example/old":null}}`,
		"PATCH /api/v1/nodes/a ",
		`metadata: {"labels":{"x.example/a":"1","x.example/b":"1"},"annotations":{"nfd.node.kubernetes.io/extended-resources":"x.example/new",` +
			`"nfd.node.kubernetes.io/feature-labels":"x.example/a,x.example/b"}}`,
		"PATCH /api/v1/nodes/a/status ",
		`status: {"capacity":{"x.example/new":"2"}}`,
	}, asked)
}
