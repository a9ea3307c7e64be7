package ironic

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/inspection"
)

// fakeIronic answers paths with texts, to whoever has the password, and counts its connections.
func fakeIronic(t *testing.T, answers map[string]string) (*Client, *Access, *atomic.Int32) {
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "firstlight" || password != "secret" {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		assert.Equal(t, "1.81", r.Header.Get("X-OpenStack-Ironic-API-Version"))
		path := r.URL.Path
		if marker := r.URL.Query().Get("marker"); marker != "" {
			path += "?marker=" + marker
		}
		if r.Method != http.MethodGet {
			path = r.Method + " " + path
		}
		answer, ok := answers[path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if r.Method != http.MethodGet {
			w.WriteHeader(http.StatusAccepted)
		}
		_, _ = fmt.Fprintf(w, answer, "https://"+r.Host)
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	access := &Access{
		Endpoint: server.URL, Username: "firstlight", Password: "secret",
		CA: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})),
	}
	return &Client{Access: func() (Access, error) { return *access, nil }}, access, &connections
}

func TestMaintenanceEnds(t *testing.T) {
	client, access, _ := fakeIronic(t, map[string]string{"DELETE /v1/nodes/u-1/maintenance": "%.0s"})
	require.NoError(t, client.EndMaintenance(t.Context(), "u-1"))
	assert.ErrorContains(t, client.EndMaintenance(t.Context(), "u-2"), "end the maintenance of node u-2 in Ironic")
	access.Password = "wrong"
	assert.Error(t, client.EndMaintenance(t.Context(), "u-1"))
}

func TestInspection(t *testing.T) {
	client, access, _ := fakeIronic(t, map[string]string{
		"/v1/nodes/one/inventory": `{"inventory": {"disks": [], "boot": {"current_boot_mode": "bios"}}, "plugin_data": {"firstlight_contents":` +
			` {"/dev/vda": {"kinds": []}, "/dev/vdb": {"kinds": ["gpt"], "fingerprint": "data-00000000000a",` +
			` "mark": {"site": "a", "node": "b", "id": "c", "time": ""}}}, "firstlight_devices": [{"address": "0000:3b:00.0", "class": "020000"}], "root_disk": {"name": "/dev/vda"}}}%.0s`,
		"/v1/nodes/before/inventory": `{"inventory": {}, "plugin_data": {"firstlight_disks":` +
			` {"/dev/vda": [], "/dev/vdb": ["gpt", "vfat"]}}}%.0s`,
		"/v1/nodes/old/inventory":  `{"inventory": {}, "plugin_data": {}}%.0s`,
		"/v1/nodes/odd/inventory":  `{"inventory": {}, "plugin_data": {"firstlight_disks": "none"}}%.0s`,
		"/v1/nodes/torn/inventory": `{"inventory": {}, "plu%.0s`,
	})
	for _, c := range []struct {
		node string
		want map[string]inspection.Disk
		err  string
	}{
		{"one", map[string]inspection.Disk{"/dev/vda": {Kinds: []string{}}, "/dev/vdb": {Kinds: []string{"gpt"}, Fingerprint: "data-00000000000a",
			Mark: &inspection.Mark{Site: "a", Node: "b", ID: "c"}}}, ""},
		{"before", map[string]inspection.Disk{"/dev/vda": {Kinds: []string{}}, "/dev/vdb": {Kinds: []string{"gpt", "vfat"}}}, ""},
		{"old", nil, ""},
		{"absent", nil, ""},
		{"odd", nil, "read the inventory of node odd"},
		{"torn", nil, "ask Ironic for the inventory of node torn"},
	} {
		t.Run(c.node, func(t *testing.T) {
			got, err := client.Inspection(t.Context(), c.node)
			assert.Equal(t, c.want, got.Disks)
			assert.Equal(t, c.node == "one", len(got.Devices) == 1)
			assert.Equal(t, c.node == "one", got.Booted == inspection.BIOS)
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.err)
			}
		})
	}
	access.Password = "wrong"
	_, err := client.Inspection(t.Context(), "one")
	assert.ErrorContains(t, err, "401")
	access.CA = ""
	_, err = client.Inspection(t.Context(), "one")
	assert.ErrorContains(t, err, "no root certificate")
	client.Access = func() (Access, error) { return Access{}, errors.New("no authority yet") }
	_, err = client.Nodes(t.Context())
	assert.ErrorContains(t, err, "no authority yet")
}

// Ironic sends a thousand nodes at most, and the link to the next page.
func TestAllPagesAreReadOverOneConnection(t *testing.T) {
	recent := time.Now().UTC().Format("2006-01-02T15:04:05+00:00")
	node := `{"uuid": %q, "name": null, "power_state": "power on", "last_error": null, "provision_updated_at": null,` +
		` "inspection_finished_at": %q, "driver_internal_info": {}}`
	client, _, connections := fakeIronic(t, map[string]string{
		"/v1/nodes":            `{"nodes": [` + fmt.Sprintf(node, "u-1", recent) + `], "next": "%s/v1/nodes?marker=u-1"}`,
		"/v1/nodes?marker=u-1": `{"nodes": [` + fmt.Sprintf(node, "u-2", recent) + `]}%.0s`,
	})
	all, err := client.Nodes(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 2)
	assert.Equal(t, "u-2", all[1].UUID)
	due, err := client.AgentsDue(t.Context())
	require.NoError(t, err)
	assert.Equal(t, map[string]bool{"u-1": true, "u-2": true}, due)
	assert.EqualValues(t, 1, connections.Load(), "connections are kept")
}
