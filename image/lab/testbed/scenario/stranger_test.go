package scenario_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

const ironicURL = "https://" + scenario.Address + ":6385"

// forged is an inventory in a host's name: its only disk is blank, and not its.
func forged(mac string) string {
	return fmt.Sprintf(`{"inventory": {"interfaces": [{"name": "eth0", "mac_address": %q, "ipv4_address": "172.22.0.66"}],
		"disks": [{"name": "/dev/sdb", "size": 500107862016, "serial": "FORGED", "wwn": "0x5000c500forged"}],
		"memory": {"physical_mb": 1}, "cpu": {"count": 1, "architecture": "x86_64"}, "bmc_address": "0.0.0.0",
		"boot": {"current_boot_mode": "uefi", "pxe_interface": %q}}, "firstlight_contents": {"/dev/sdb": {"kinds": []}}}`, mac, mac)
}

// attack tries all that a stranger can say to become a host, by its MAC alone or with a path of its own, and returns how
// often it was told no. It may get no answer at all, or be told to ask again: it has too many connections.
func attack(t *testing.T, ctx context.Context, s *scenario.Stranger, h *simulator.Server, uuid, base string) (refused int) {
	t.Helper()
	beat := fmt.Sprintf(`{"callback_url": "https://%s:9999", "agent_token": %q, "agent_version": "10.2.0"}`, s.Addr, strings.Repeat("x", 32))
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/v1/continue_inspection", forged(h.MAC)},
		{"POST", "/v1/continue_inspection?node_uuid=" + uuid, forged(h.MAC)},
		{"GET", "/v1/lookup?addresses=" + h.MAC, ""},
		{"GET", "/v1/lookup?node_uuid=" + uuid, ""},
		{"POST", "/v1/heartbeat/" + uuid, beat},
		{"GET", "/v1/nodes/" + uuid, ""},
		{"GET", "/v1/nodes", ""},
	} {
		status, said := s.Ask(ctx, c.method, ironicURL+base+c.path, c.body)
		if status == 0 || status == http.StatusServiceUnavailable {
			continue
		}
		assert.True(t, status >= 400 && status < 500, "%s %s: %d %s", c.method, c.path, status, said)
		refused++
	}
	return refused
}

// TestAStrangerGetsNothing: while a host is inspected and installed, a machine on the provisioning network without
// credentials tries to be that host. Nothing it says is believed and nothing it hears is secret; the appliance outlives
// its silence and its noise; the host says who calls in its name, and is installed.
func TestAStrangerGetsNothing(t *testing.T) {
	need(t)
	ctx, d := start(t, "stranger", 1, 30*time.Minute)
	host := d.Servers.Hosts()[0]
	began := time.Now()
	require.NoError(t, d.Begin(ctx, d.Servers.SiteDocument("eth0", scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA)))))
	_, err := d.Sandbox.AwaitStage(ctx, "wire-serving", t.Output())
	require.NoError(t, err)
	s, err := d.NewStranger(ctx)
	require.NoError(t, err)
	defer s.Close()
	_, err = d.Sandbox.AwaitStage(ctx, "site-handed-over", t.Output())
	require.NoError(t, err)

	// Its own boot is that of an unknown machine: it has a token, and may do nothing with it in the host's name.
	var script, after string
	for ok := false; !ok; time.Sleep(200 * time.Millisecond) { // until the appliance knows its hosts
		require.NoError(t, ctx.Err(), script)
		_, script = s.Ask(ctx, "GET", scenario.Boot+"/ipxe/"+strings.ReplaceAll(s.MAC, ":", "-"), "")
		_, after, ok = strings.Cut(script, "ipa-inspection-callback-url="+ironicURL)
	}
	own, _, ok := strings.Cut(after, "/v1/continue_inspection")
	require.True(t, ok, script)
	require.NotContains(t, script, "ipa-api-url")

	attacking, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	tried := 0
	go func() {
		defer close(ended)
		for attacking.Err() == nil {
			nodes, err := d.Nodes(attacking)
			uuid := nodes[host.Name].UUID
			if err != nil || uuid == "" {
				uuid = "00000000-0000-4000-8000-000000000000"
			}
			for _, base := range []string{"", "/b/" + strings.Repeat("A", 43), own} {
				tried += attack(t, attacking, s, host, uuid, base)
			}
			_, script := s.Ask(attacking, "GET", scenario.Boot+"/ipxe/"+strings.ReplaceAll(host.MAC, ":", "-"), "")
			assert.NotContains(t, script, "/b/", "another's script")
			time.Sleep(200 * time.Millisecond)
		}
	}()
	claimed := s.Addr.String() + " called in its name and was refused"
	t.Log(says(t, ctx, d, host.Name, claimed))
	follow(t, ctx, d, began, scenario.HostInState(host.Name, metal3api.StateProvisioning))

	silent, err := s.Connect(ctx, scenario.Address+":6385", 101)
	require.NoError(t, err)
	for range 3 {
		_, err := d.Nodes(ctx)
		require.NoError(t, err, "Ironic's API does not answer")
	}
	s.Ask(ctx, "POST", ironicURL+"/v1/continue_inspection", strings.Repeat(" ", 60<<20))
	_, err = d.Nodes(ctx)
	require.NoError(t, err, "Ironic's API does not answer")

	follow(t, ctx, d, began, scenario.AllInState(1, metal3api.StateProvisioned))
	stop()
	<-ended
	for _, conn := range silent {
		_ = conn.Close()
	}
	started(t, d)
	onDisk(t, d, scenario.ImageA)
	t.Logf("refused %d times in %.0f s", tried, time.Since(began).Seconds())
	assert.Greater(t, tried, 100)
	assert.Equal(t, 1, host.Counters().DiskWrites)
	hosts, err := d.Hosts(ctx)
	require.NoError(t, err)
	assert.Equal(t, "DISK1", hosts[host.Name].Status.HardwareDetails.Storage[0].SerialNumber)

	for _, secret := range []string{"PRIVATE KEY", "hashed_passwd", "user_data", "agent_token", "configdrive", d.Servers.Password()} {
		assert.False(t, s.HasHeard(secret), secret)
	}
	if password, err := d.IronicPassword(); assert.NoError(t, err) {
		assert.False(t, s.HasHeard(password), "the password of Ironic")
	}

	log := d.Sandbox.UnitLog("firstlightd.service")
	refused := strings.Count(log, "agent refused")
	assert.Positive(t, refused)
	assert.Less(t, refused, 20, "each is told once")
	events := run(t, ctx, d, "kubectl", "-n", "metal3", "get", "events", "--field-selector", "reason=AgentRefused")
	assert.Contains(t, events, "baremetalhost/"+host.Name)
	assert.Contains(t, events, claimed)
}
