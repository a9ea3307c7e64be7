package scenario_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// appliedHost is the document's Secret and BareMetalHost for a simulated server.
func appliedHost(d *scenario.Scenario, h *simulator.Server, spec string) string {
	return fmt.Sprintf(`---
{apiVersion: v1, kind: Secret, metadata: {name: %[1]s-bmc-secret}, stringData: {username: %[2]s, password: %[3]s}}
---
{apiVersion: v1, kind: Secret, metadata: {name: %[1]s-user-data}, stringData: {userData: "#cloud-config\nhostname: %[1]s\n"}}
---
apiVersion: metal3.io/v1alpha1
kind: BareMetalHost
metadata: {name: %[1]s}
spec:
  online: true
  bmc: {address: %[4]q, credentialsName: %[1]s-bmc-secret, disableCertificateVerification: true}
  userData: {name: %[1]s-user-data, namespace: metal3}
%[5]s
`, h.Name, d.Servers.Username(), d.Servers.Password(), h.BMC(), spec)
}

func specImage() string {
	return fmt.Sprintf("  image: {url: %q, checksum: %s, checksumType: sha256, format: raw}\n",
		scenario.Boot+"/"+scenario.ImageA+".raw", scenario.ImageSum(scenario.ImageA))
}

// kubectlApply applies documents with the appliance's own kubectl.
func kubectlApply(t *testing.T, ctx context.Context, d *scenario.Scenario, documents string) {
	t.Helper()
	out := ""
	require.Eventually(t, func() bool { // for some seconds after it started the API server refuses what a policy changes
		var err error
		out, err = d.Sandbox.Run(ctx, "sh", "-c", "kubectl -n metal3 apply -f - <<'END'\n"+documents+"\nEND")
		if err != nil {
			t.Log(err)
		}
		return err == nil
	}, 5*time.Minute, 3*time.Second)
	t.Log(out)
}

// statusReads waits until the daemon says something.
func statusReads(t *testing.T, ctx context.Context, d *scenario.Scenario, name, text string) {
	t.Helper()
	said := ""
	for ; ; time.Sleep(2 * time.Second) {
		said, _ = d.Sandbox.Run(ctx, "firstlightd", "why", name)
		if strings.Contains(said, text) {
			break
		}
		require.NoError(t, ctx.Err(), "%s is not told of %s: %s", text, name, said)
	}
	t.Logf("%s: %s", name, said)
}

// TestHostsThatSomeoneApplies has a site that names no nodes, and hosts that come by kubectl: each is checked before it
// is switched on, gets its image only after its disk was looked at, on the disk that inspection found, and keeps its own
// user data with the appliance's keys behind it.
func TestHostsThatSomeoneApplies(t *testing.T) {
	need(t)
	ctx, d := start(t, "applied", 4, 40*time.Minute)
	hosts := d.Servers.Hosts()
	whole, dirty, later, refused := hosts[0], hosts[1], hosts[2], hosts[3]
	dirty.SetDisks(simulator.Disk{Name: "/dev/sda", Serial: "KEPT", Size: 480 << 30, Holds: []string{"gpt", "ext4"}})
	refused.SetFaults(simulator.Faults{Password: "another"})
	site := "name: fleet\nnetworks: {provisioning: {interface: eth0}}\n"
	require.NoError(t, d.Begin(ctx, site))
	_, err := d.Sandbox.AwaitStage(ctx, "site-handed-over", t.Output())
	require.NoError(t, err)

	began := time.Now()
	mac := func(h *simulator.Server) string { return fmt.Sprintf("  bootMACAddress: %q\n", h.MAC) }
	kubectlApply(t, ctx, d, appliedHost(d, whole, mac(whole)+specImage())+appliedHost(d, dirty, mac(dirty)+specImage())+
		appliedHost(d, later, mac(later))+appliedHost(d, refused, mac(refused)+specImage()))
	statusReads(t, ctx, d, refused.Name, "is not switched on: the BMC")
	assert.Zero(t, refused.Counters().BMCWrites, "switched on before its pre-flight passed")

	follow(t, ctx, d, began, scenario.HostInState(whole.Name, metal3api.StateProvisioned))
	statusReads(t, ctx, d, dirty.Name, "is not written to: its disk /dev/sda is not empty")
	assert.Empty(t, dirty.Disks()[0].Image)
	follow(t, ctx, d, began, scenario.HostInState(later.Name, metal3api.StateAvailable))

	// What is missing is given, each by its own way.
	run(t, ctx, d, "kubectl", "-n", "metal3", "annotate", "bmh", dirty.Name, label.Overwrite+"=true") // before its first installation
	kubectlApply(t, ctx, d, appliedHost(d, later, mac(later)+specImage()))
	refused.SetFaults(simulator.Faults{})
	run(t, ctx, d, "firstlightd", "reload")
	follow(t, ctx, d, began, scenario.AllInState(4, metal3api.StateProvisioned))
	started(t, d)
	onDisk(t, d, scenario.ImageA)
	all, err := d.Hosts(ctx)
	require.NoError(t, err)
	for name, h := range all {
		assert.NotContains(t, h.Annotations, metal3api.PausedAnnotation, name)
		assert.Equal(t, metal3api.CleaningModeDisabled, h.Spec.AutomatedCleaningMode, name)
		require.NotNil(t, h.Spec.RootDeviceHints, name)
		assert.NotEmpty(t, h.Spec.RootDeviceHints.SerialNumber, "%s: its disk was not chosen by its inspection", name)
		assert.NotContains(t, run(t, ctx, d, "firstlightd", "why", name), "not in site.yaml any more")
	}
	merged := run(t, ctx, d, "kubectl", "-n", "metal3", "get", "secret", whole.Name+"-firstlight-user-data", "-o", "jsonpath={.data.userData}")
	assert.NotEmpty(t, merged)

	// All that the API knew is lost: they are in service, and stay so.
	lose(t, ctx, d, scenario.Both, site, 10*time.Second)
	onDisk(t, d, scenario.ImageA)
}
