package simulator_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/simulator"
)

// browser speaks to a host's BMC.
type browser struct {
	t        *testing.T
	base     string
	password string
	session  string
	client   *http.Client
}

func console(t *testing.T, h *simulator.Server) *browser {
	t.Helper()
	address, found := strings.CutPrefix(h.BMC(), "redfish://")
	scheme := "https://"
	if !found {
		address, scheme = strings.TrimPrefix(h.BMC(), "redfish+http://"), "http://"
	}
	base, _, _ := strings.Cut(address, "/")
	return &browser{t, scheme + base, "secret-of-bmc", "", &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // as most BMCs are spoken to
	}}}
}

// do makes a request, checks the status and returns the body and a header.
func (b *browser) do(method, path, body string, want int) (map[string]any, http.Header) {
	b.t.Helper()
	request, err := http.NewRequest(method, b.base+path, strings.NewReader(body))
	require.NoError(b.t, err)
	if b.session != "" {
		request.Header.Set("X-Auth-Token", b.session)
	} else if b.password != "" {
		request.SetBasicAuth("admin", b.password)
	}
	response, err := b.client.Do(request)
	require.NoError(b.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(b.t, err)
	require.Equal(b.t, want, response.StatusCode, "%s %s: %s", method, path, text)
	var out map[string]any
	if len(text) > 0 {
		require.NoError(b.t, json.Unmarshal(text, &out))
	}
	return out, response.Header
}

func TestEveryLinkOfABMCLeadsSomewhere(t *testing.T) {
	for _, plain := range []bool{false, true} {
		h := start(t, nil, simulator.Config{Hosts: 1, PlainBMC: plain}).Hosts()[0]
		b := console(t, h)
		seen := map[string]bool{}
		var follow func(any)
		follow = func(v any) {
			switch v := v.(type) {
			case map[string]any:
				if path, ok := v["@odata.id"].(string); ok && !seen[path] {
					seen[path] = true
					body, _ := b.do(http.MethodGet, path, "", http.StatusOK)
					assert.Contains(t, body, "@odata.type", path)
					follow(body)
				}
				for _, inner := range v {
					follow(inner)
				}
			case []any:
				for _, inner := range v {
					follow(inner)
				}
			}
		}
		follow(map[string]any{"@odata.id": "/redfish/v1/"})
		for _, path := range []string{"/redfish/v1/Systems/1", "/redfish/v1/Managers/1", "/redfish/v1/Chassis/1", "/redfish/v1/SessionService/Sessions"} {
			assert.Contains(t, seen, path)
		}
		assert.Zero(t, h.Counters().BMCWrites, "looking changed something")
		assert.Zero(t, h.Counters().BMCUnknown)
	}
}

func TestABMCKnowsPasswordsAndSessions(t *testing.T) {
	h := start(t, nil, simulator.Config{Hosts: 1}).Hosts()[0]
	b := console(t, h)
	const system, sessions = "/redfish/v1/Systems/1", "/redfish/v1/SessionService/Sessions"
	_, header := b.do(http.MethodPost, sessions, `{"UserName": "admin", "Password": "secret-of-bmc"}`, http.StatusCreated)
	b.session = header.Get("X-Auth-Token")
	require.NotEmpty(t, b.session)
	b.do(http.MethodGet, system, "", http.StatusOK)
	b.do(http.MethodDelete, header.Get("Location"), "", http.StatusNoContent)
	b.do(http.MethodGet, system, "", http.StatusUnauthorized)

	b.session, b.password = "", "wrong"
	b.do(http.MethodGet, system, "", http.StatusUnauthorized)
	b.do(http.MethodPost, sessions, `{"UserName": "admin", "Password": "wrong"}`, http.StatusUnauthorized)
	b.password = ""
	b.do(http.MethodGet, system, "", http.StatusUnauthorized)
	b.do(http.MethodGet, "/redfish/v1", "", http.StatusOK) // the root needs none
	b.password = "secret-of-bmc"
	assert.Equal(t, 4, h.Counters().BMCRefused)

	_, header = b.do(http.MethodPost, sessions, `{"UserName": "admin", "Password": "secret-of-bmc"}`, http.StatusCreated)
	h.SetFaults(simulator.Faults{Password: "changed"})
	b.do(http.MethodGet, system, "", http.StatusUnauthorized)
	b.session = header.Get("X-Auth-Token")
	b.do(http.MethodGet, system, "", http.StatusUnauthorized)
}

func TestButtonsOfABMC(t *testing.T) {
	h := start(t, nil, simulator.Config{Hosts: 1}).Hosts()[0]
	b := console(t, h)
	const system, reset = "/redfish/v1/Systems/1", "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"
	press := func(kind string, want int, power string) {
		t.Helper()
		b.do(http.MethodPost, reset, `{"ResetType": "`+kind+`"}`, want)
		body, _ := b.do(http.MethodGet, system, "", http.StatusOK)
		assert.Equal(t, power, body["PowerState"], kind)
	}
	press("On", http.StatusNoContent, "On")
	press("ForceRestart", http.StatusNoContent, "On")
	press("ForceOff", http.StatusNoContent, "Off")
	press("PushPowerButton", http.StatusNoContent, "On")
	press("PushPowerButton", http.StatusNoContent, "Off")
	press("Explode", http.StatusBadRequest, "Off")
	h.SetFaults(simulator.Faults{StuckPower: true})
	press("On", http.StatusNoContent, "Off")

	b.do(http.MethodPatch, system, `{"Boot": {"BootSourceOverrideTarget": "Moon"}}`, http.StatusBadRequest)
	b.do(http.MethodPatch, system, `{"Boot": {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}}`, http.StatusOK)
	body, _ := b.do(http.MethodGet, system, "", http.StatusOK)
	assert.Equal(t, "Pxe", body["Boot"].(map[string]any)["BootSourceOverrideTarget"])
	h.SetFaults(simulator.Faults{})
	press("On", http.StatusNoContent, "On")
	body, _ = b.do(http.MethodGet, system, "", http.StatusOK)
	assert.Equal(t, "None", body["Boot"].(map[string]any)["BootSourceOverrideTarget"], "meant for one boot")
	assert.Equal(t, 8, h.Counters().BMCWrites)
	b.do(http.MethodGet, "/redfish/v1/Moon", "", http.StatusNotFound)
	assert.Equal(t, 1, h.Counters().BMCUnknown)
}

func TestABrokenBMC(t *testing.T) {
	h := start(t, nil, simulator.Config{Hosts: 1}).Hosts()[0]
	b := console(t, h)
	h.SetFaults(simulator.Faults{Status: http.StatusInternalServerError})
	b.do(http.MethodGet, "/redfish/v1/Systems/1", "", http.StatusInternalServerError)

	h.SetFaults(simulator.Faults{Hang: true})
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base+"/redfish/v1", nil)
	require.NoError(t, err)
	answered := make(chan error, 1)
	go func() {
		response, err := b.client.Do(request)
		if err == nil {
			response.Body.Close()
		}
		answered <- err
	}()
	eventually(t, h, "the request did not arrive", func() bool { return strings.Contains(events(h), "bmc: hangs") })
	select {
	case err := <-answered:
		t.Fatal("it was answered: ", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	require.Error(t, <-answered)
}

func TestAFleetMovesToAnotherNetwork(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("entering a namespace needs root")
	}
	f := start(t, nil, simulator.Config{Hosts: 2})
	h := f.Hosts()[1]
	console(t, h).do(http.MethodGet, "/redfish/v1", "", http.StatusOK)
	require.NoError(t, f.MoveTo("/proc/self/ns/net"))
	console(t, h).do(http.MethodGet, "/redfish/v1", "", http.StatusOK)
}
