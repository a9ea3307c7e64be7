package joined

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// cluster answers what check asks, as an API server would.
type cluster struct {
	version string // "": a recent one
	nodes   string
	hosts   string // the definition of BareMetalHosts; "": there is none
}

func (c cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answers := map[string]string{
		"/version": `{"gitVersion":"` + cmp.Or(c.version, "v1.36.0") + `"}`,
		"/api":     `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apiextensions.k8s.io",
			"versions":[{"groupVersion":"apiextensions.k8s.io/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apiextensions.k8s.io/v1","version":"v1"}}]}`,
		"/apis/apiextensions.k8s.io/v1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apiextensions.k8s.io/v1",
			"resources":[{"name":"customresourcedefinitions","kind":"CustomResourceDefinition","namespaced":false,"verbs":["get"]}]}`,
		"/api/v1/nodes": `{"kind":"NodeList","apiVersion":"v1","items":[` + c.nodes + `]}`,
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/baremetalhosts.metal3.io": c.hosts,
	}
	w.Header().Set("Content-Type", "application/json")
	if text := answers[r.URL.Path]; text != "" {
		_, _ = w.Write([]byte(text))
		return
	}
	w.WriteHeader(http.StatusNotFound)
	_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
}

const node = `{"metadata":{"name":"a"}}`

func TestWhatAClusterMustBe(t *testing.T) {
	foreign := `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"baremetalhosts.metal3.io"}}`
	ours := `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"baremetalhosts.metal3.io","annotations":{"firstlight.dev/applied":"0123"}}}`
	for _, c := range []struct {
		name      string
		cluster   cluster
		says      string
		permanent bool
	}{
		{"nothing of others", cluster{nodes: node}, "", false},
		{"ours", cluster{nodes: node, hosts: ours}, "", false},
		{"the oldest API server", cluster{nodes: node, version: "v1.33.0+k3s1"}, "", false},
		{"one of a cloud", cluster{nodes: node, version: "v1.34.1-gke.2037000"}, "", false},
		{"an older API server", cluster{nodes: node, version: "v1.32.9"}, "Kubernetes v1.32.9, and the appliance was never tried with one before 1.33", true},
		{"no node", cluster{}, "one node to have the label firstlight.dev/appliance; 0 have it", false},
		{"two nodes", cluster{nodes: node + "," + node}, "2 have it", false},
		{"someone else's Metal3", cluster{nodes: node, hosts: foreign}, "the cluster has baremetalhosts.metal3.io, and not from an appliance", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(c.cluster)
			defer server.Close()
			joined := &Cluster{Config: func() (*rest.Config, error) { return &rest.Config{Host: server.URL}, nil }}
			err := joined.Stage().Done(t.Context())
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
			assert.Equal(t, c.permanent, bringup.IsPermanent(err))
		})
	}
}

func TestIronicIsStartedBesideMetal3(t *testing.T) {
	server := httptest.NewServer(cluster{nodes: node})
	defer server.Close()
	joined := &Cluster{Config: func() (*rest.Config, error) { return &rest.Config{Host: server.URL}, nil }}
	started := 0
	joined.StartBeside(func(context.Context, bringup.Report) { started++ })
	stage := joined.Stage()
	assert.Error(t, stage.Done(t.Context()))
	assert.Zero(t, started, "to ask starts nothing")
	require.NoError(t, stage.Do(t.Context(), func(string) {}))
	assert.NoError(t, stage.Done(t.Context()))
	assert.Equal(t, 1, started)

	foreign := httptest.NewServer(cluster{nodes: node, version: "v1.30.0"})
	defer foreign.Close()
	refused := &Cluster{Config: func() (*rest.Config, error) { return &rest.Config{Host: foreign.URL}, nil }}
	refused.StartBeside(func(context.Context, bringup.Report) { started++ })
	assert.Error(t, refused.Stage().Do(t.Context(), func(string) {}))
	assert.Equal(t, 1, started, "on a cluster that is refused")
}
