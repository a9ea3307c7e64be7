package ironic

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestADiskIsErasedByTheStepThatNamesIt: what Ironic is sent, and what it answers.
func TestADiskIsErasedByTheStepThatNamesIt(t *testing.T) {
	var asked []string
	status := http.StatusAccepted
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		asked = append(asked, r.Method+" "+r.URL.Path+" "+string(body))
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodGet && r.URL.Path == "/v1/nodes/u-1":
			_, _ = io.WriteString(w, `{"uuid": "u-1", "provision_state": "clean failed", "power_state": "power off",`+
				` "last_error": "no", "maintenance": true, "automated_clean": false, "provision_updated_at": null}`)
		case r.Method == http.MethodGet:
			http.NotFound(w, r)
		case r.Method == http.MethodPatch:
			_, _ = io.WriteString(w, `{"uuid": "u-1", "provision_updated_at": null}`)
		default:
			w.WriteHeader(status)
		}
	}))
	t.Cleanup(server.Close)
	root := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	client := &Client{Access: func() (Access, error) {
		return Access{Endpoint: server.URL, Username: "firstlight", Password: "secret", CA: root}, nil
	}}

	n, err := client.Node(t.Context(), "u-1")
	require.NoError(t, err)
	assert.Equal(t, "clean failed", n.ProvisionState)
	assert.True(t, n.Maintenance)
	require.NotNil(t, n.AutomatedClean)
	assert.False(t, *n.AutomatedClean)
	n, err = client.Node(t.Context(), "u-2")
	require.NoError(t, err)
	assert.Nil(t, n, "a node that Ironic does not have")

	asked = nil
	disks := []map[string]string{{"name": "/dev/sda", "serial": "A"}}
	require.NoError(t, client.Manage(t.Context(), "u-1"))
	require.NoError(t, client.EraseDisks(t.Context(), "u-1", disks))
	require.NoError(t, client.Abort(t.Context(), "u-1"))
	require.NoError(t, client.Protect(t.Context(), "u-1"))
	require.NoError(t, client.Provide(t.Context(), "u-1"))
	const states = "PUT /v1/nodes/u-1/states/provision "
	require.Len(t, asked, 5)
	assert.Equal(t, states+`{"target":"manage"}`, asked[0])
	var clean struct {
		Target string
		Steps  []struct {
			Interface, Step string
			Args            map[string][]map[string]string
		} `json:"clean_steps"`
	}
	require.NoError(t, json.Unmarshal([]byte(asked[1][len(states):]), &clean))
	assert.Equal(t, "clean", clean.Target)
	require.Len(t, clean.Steps, 1, "no other step erases anything")
	assert.Equal(t, "erase_disks", clean.Steps[0].Step)
	assert.Equal(t, "deploy", clean.Steps[0].Interface)
	assert.Equal(t, disks, clean.Steps[0].Args["disks"])
	assert.Equal(t, states+`{"target":"abort"}`, asked[2])
	assert.Equal(t, `PATCH /v1/nodes/u-1 [{"op":"replace","path":"/automated_clean","value":false}]`, asked[3])
	assert.Equal(t, states+`{"target":"provide"}`, asked[4])

	status = http.StatusConflict // it is locked
	assert.ErrorContains(t, client.Manage(t.Context(), "u-1"), "ask Ironic to manage node u-1")
}
