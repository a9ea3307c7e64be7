package scenario_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// Kind is what FIRSTLIGHT_TEST must contain, beside native, for the scenarios that take minutes.
const kind = "fleet"

func isFleet() bool { return slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), kind) }

func need(t *testing.T) {
	if !isFleet() {
		t.Skip("provisions fake servers for minutes; set FIRSTLIGHT_TEST=native," + kind)
	}
}

// bootTime is less than any server takes. A host that posts its inventory before Ironic has seen its power
// come on, and with fifty of them that may take seconds, is unknown and waits for half an hour.
const bootTime = 15 * time.Second

// start makes an appliance with n servers, as they are plugged in.
func start(t *testing.T, name string, n int, patience time.Duration) (context.Context, *scenario.Scenario) {
	t.Helper()
	return startFleet(t, name, simulator.Config{Hosts: n, BootTime: bootTime}, patience)
}

// startFleet makes an appliance with servers of some kind.
func startFleet(t *testing.T, name string, servers simulator.Config, patience time.Duration) (context.Context, *scenario.Scenario) {
	t.Helper()
	root := sandbox.RequireRoot(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	programs, err := sandbox.BuildPrograms(ctx, t.TempDir())
	require.NoError(t, err)
	d, err := scenario.Start(ctx, scenario.Config{Name: name, Dir: t.TempDir(), Root: root, Programs: programs, Log: t.Output(), Servers: servers})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("firstlightd, the end of its log:\n%s", end(d.Sandbox.UnitLog("firstlightd.service"), 8000))
			t.Logf("operator:\n%s", d.Logs("manager", 6000))
			t.Logf("ironic:\n%s", d.Logs("ironic", 8000))
			for _, h := range d.Servers.Hosts()[:min(servers.Hosts, 8)] {
				t.Logf("%s: %s %+v\n%s", h.Name, h.State(), h.Counters(), events(h))
			}
		}
		assert.NoError(t, d.Close())
	})
	return ctx, d
}

func end(s string, n int) string { return s[max(0, len(s)-n):] }

func events(h *simulator.Server) string {
	var out strings.Builder
	for _, e := range h.Events() {
		fmt.Fprintf(&out, "  %s %s\n", e.At.Format("15:04:05"), e.What)
	}
	return out.String()
}

// follow waits until the hosts are as wanted and prints when the last was first seen in each state.
func follow(t *testing.T, ctx context.Context, d *scenario.Scenario, began time.Time, wanted func(map[string]metal3api.BareMetalHost) bool) map[string]time.Duration {
	t.Helper()
	phases, err := d.WaitForHosts(ctx, began, wanted)
	require.NoError(t, err)
	return phases
}

// run runs a command on the appliance's shell.
func run(t *testing.T, ctx context.Context, d *scenario.Scenario, name string, args ...string) string {
	t.Helper()
	out, err := d.Sandbox.Run(ctx, name, args...)
	require.NoError(t, err)
	return out
}

// readWord runs a command of the daemon that loses data without confirming it; the word that confirms what it printed is
// its last.
func readWord(t *testing.T, ctx context.Context, d *scenario.Scenario, args ...string) (printed, word string) {
	t.Helper()
	printed = run(t, ctx, d, "firstlightd", args...)
	words := strings.Fields(printed)
	require.NotEmpty(t, words)
	return printed, words[len(words)-1]
}

// provision brings n hosts into service.
func provision(t *testing.T, ctx context.Context, d *scenario.Scenario, n int) {
	t.Helper()
	provisionSite(t, ctx, d, n, d.Servers.SiteDocument("eth0", scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA))))
}

// provisionSite is provision with a site document.
func provisionSite(t *testing.T, ctx context.Context, d *scenario.Scenario, n int, site string) {
	t.Helper()
	began := time.Now()
	require.NoError(t, d.Begin(ctx, site))
	_, err := d.Sandbox.AwaitStage(ctx, "site-handed-over", t.Output())
	require.NoError(t, err)
	t.Logf("site handed over after %.0f s", time.Since(began).Seconds())
	handed := time.Now()
	phases := follow(t, ctx, d, handed, scenario.AllInState(n, metal3api.StateProvisioned))
	t.Logf("%d hosts provisioned %.0f s after they were handed over; last host in each phase: %v", n, time.Since(handed).Seconds(), phases)
	usage, err := d.Usage(ctx)
	require.NoError(t, err)
	t.Logf("since the appliance was switched on: %+v", usage)
	started(t, d)
	onDisk(t, d, scenario.ImageA)
}

// started waits until every host, just installed, has left its firmware.
func started(t *testing.T, d *scenario.Scenario) {
	t.Helper()
	for _, h := range d.Servers.Hosts() {
		require.Eventually(t, func() bool { return h.State() == simulator.OnDisk }, time.Minute+bootTime, 100*time.Millisecond, "%s does not start its system", h.Name)
	}
}

// onDisk checks that every host has the image on its disk and runs it.
func onDisk(t *testing.T, d *scenario.Scenario, image string) {
	t.Helper()
	for _, h := range d.Servers.Hosts() {
		disk := h.Disks()[0]
		assert.Equal(t, scenario.ImageSum(image), disk.Image, h.Name)
		assert.True(t, disk.Drive, "%s has no config drive", h.Name)
		assert.NotEmpty(t, disk.HostKey, "%s has made no host key", h.Name)
		for _, drive := range h.ReceivedDrives() {
			assert.NotContains(t, string(drive), "PRIVATE KEY", "a private key of %s was on the network", h.Name)
		}
		assert.Equal(t, simulator.OnDisk, h.State(), h.Name)
	}
}

// outlivesVanishing checks that clients of Ironic which are gone before they are accepted end only themselves.
func outlivesVanishing(t *testing.T, ctx context.Context, d *scenario.Scenario) {
	t.Helper()
	require.NoError(t, d.Vanish(ctx, 300))
	for range 3 {
		_, err := d.Nodes(ctx)
		require.NoError(t, err, "Ironic has ended its server")
	}
}

// TestOneHostOutlivesWhatIsKnownOfIt is the short scenario: one host comes into service, and
// stays there when all that the appliance knew of it is lost but its record.
func TestOneHostOutlivesWhatIsKnownOfIt(t *testing.T) {
	need(t)
	ctx, d := start(t, "one", 1, 20*time.Minute)
	site := d.Servers.SiteDocument("eth0", scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA)))
	began := time.Now()
	require.NoError(t, d.Begin(ctx, site))
	follow(t, ctx, d, began, scenario.AllInState(1, metal3api.StateProvisioned))
	t.Logf("provisioned %.0f s after the appliance was switched on\n%s", time.Since(began).Seconds(), run(t, ctx, d, "kubectl", "get", "bmh", "-A"))
	started(t, d)
	onDisk(t, d, scenario.ImageA)
	closed(t, d)
	outlivesVanishing(t, ctx, d)
	lose(t, ctx, d, scenario.Both, site, 10*time.Second)
	onDisk(t, d, scenario.ImageA)
	closed(t, d)
}
