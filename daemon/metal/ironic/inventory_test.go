package ironic

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDiskContents(t *testing.T) {
	answers := map[string]string{
		"/v1/nodes/one/inventory":  `{"inventory": {"disks": []}, "plugin_data": {"firstlight_disks": {"/dev/vda": [], "/dev/vdb": ["gpt", "vfat"]}, "root_disk": {"name": "/dev/vda"}}}`,
		"/v1/nodes/old/inventory":  `{"inventory": {}, "plugin_data": {}}`,
		"/v1/nodes/odd/inventory":  `{"inventory": {}, "plugin_data": {"firstlight_disks": "none"}}`,
		"/v1/nodes/torn/inventory": `{"inventory": {}, "plu`,
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "firstlight" || password != "secret" {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		answer, ok := answers[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Write([]byte(answer))
	}))
	defer server.Close()
	root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	api := API{Endpoint: server.URL, Credentials: Credentials{Username: "firstlight", Password: "secret"}, CA: root}
	for _, c := range []struct {
		node string
		want map[string][]string
		err  string
	}{
		{"one", map[string][]string{"/dev/vda": {}, "/dev/vdb": {"gpt", "vfat"}}, ""},
		{"old", nil, ""},
		{"absent", nil, ""},
		{"odd", nil, "read the inventory of node odd"},
		{"torn", nil, "read Ironic's answer"},
	} {
		t.Run(c.node, func(t *testing.T) {
			got, err := api.DiskContents(t.Context(), c.node)
			assert.Equal(t, c.want, got)
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.err)
			}
		})
	}
	api.Credentials.Password = "wrong"
	_, err := api.DiskContents(t.Context(), "one")
	assert.ErrorContains(t, err, "401")
	api.CA = nil
	_, err = api.DiskContents(t.Context(), "one")
	assert.ErrorContains(t, err, "no root certificate")
}
