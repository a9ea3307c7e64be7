package scenario_test

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// eraseTime is how long a simulated server takes to erase a disk: the appliance and the server lose their power
// meanwhile.
const eraseTime = 10 * time.Second

// TestDisksAreErasedOnPurpose: a server in service is refused. Given up, its root device is erased and nothing else,
// while the appliance loses its power; then a disk that is named, while the daemon is killed. It is available afterwards, and says when and how each disk was erased.
func TestDisksAreErasedOnPurpose(t *testing.T) {
	need(t)
	ctx, d := startFleet(t, "erase", simulator.Config{Hosts: 2, BootTime: bootTime, WorkTime: eraseTime}, 60*time.Minute)
	host, kept := d.Servers.Hosts()[0], d.Servers.Hosts()[1]
	host.SetDisks(
		simulator.Disk{Name: "/dev/sda", Serial: "ROOT", Size: 480e9, Media: "nvme"},
		simulator.Disk{Name: "/dev/sdb", Serial: "DATA", Size: 960e9, Holds: []string{"xfs"}},
		simulator.Disk{Name: "/dev/sdc", Serial: "KEPT", Size: 960e9, Holds: []string{"LVM2_member"}},
	)
	os := scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA))
	both := "name: fleet\nnetworks: {provisioning: {interface: eth0}}\nnodes:\n" +
		host.SiteEntry(os, `rootDevice: {serialNumber: "ROOT"}`) + kept.SiteEntry(os)
	one := "name: fleet\nnetworks: {provisioning: {interface: eth0}}\nnodes:\n" + kept.SiteEntry(os)
	began := time.Now()
	require.NoError(t, d.Begin(ctx, both))
	follow(t, ctx, d, began, scenario.AllInState(2, metal3api.StateProvisioned))
	started(t, d)

	// In service it is refused, whoever confirms it; so is what is not a node.
	refuses := func(sentence string, args ...string) {
		t.Helper()
		out, err := d.Sandbox.Run(ctx, "firstlightd", append([]string{"erase"}, args...)...)
		require.Error(t, err, out)
		assert.Contains(t, err.Error(), sentence)
	}
	before := host.Disks()
	refuses("it is in service; to give it up", host.Name)
	refuses("it is in service; to give it up", host.Name, "--confirm", "aaaa-aaaa-aaaa")
	refuses("it has no BareMetalHost", "node9", "--confirm", "aaaa-aaaa-aaaa")

	// Its owner gives it up.
	require.NoError(t, d.EditSite(ctx, one))
	run(t, ctx, d, "kubectl", "-n", "metal3", "annotate", "--overwrite", "bmh", host.Name, "firstlight.dev/allow-wipe=none")
	run(t, ctx, d, "kubectl", "-n", "metal3", "patch", "bmh", host.Name, "--type", "merge", "-p", `{"spec":{"image":null}}`)
	follow(t, ctx, d, began, scenario.HostInState(host.Name, metal3api.StateAvailable))

	// What is on its disks is looked at first: the last inspection was before its installation.
	refuses("it is not known what is on its disks now", host.Name)
	inspect := func() {
		t.Helper()
		given := time.Now()
		run(t, ctx, d, "kubectl", "-n", "metal3", "annotate", "bmh", host.Name, "inspect.metal3.io=")
		follow(t, ctx, d, began, func(hosts map[string]metal3api.BareMetalHost) bool {
			h := hosts[host.Name]
			return h.Status.Provisioning.State == metal3api.StateAvailable && h.Status.OperationHistory.Inspect.End.After(given)
		})
		require.Eventually(t, func() bool { // the daemon's picture of the hosts is a moment old
			var e status.Erase
			out, err := d.Sandbox.Run(ctx, "firstlightd", "erase", host.Name, "-o", "json")
			return err == nil && json.Unmarshal([]byte(out), &e) == nil && e.Inspected.After(given.Add(-time.Second))
		}, time.Minute, time.Second)
	}
	inspect()

	// Nothing is erased before it is confirmed with the word of what was read, nor when it was inspected since.
	refuses(`"`+host.Name+`" is no word that confirms it`, host.Name, "--confirm", host.Name)
	refuses(`"OTHER" names 0 of its disks`, host.Name, "--disk", "OTHER")
	_, stale := readWord(t, ctx, d, "erase", host.Name)
	refuses("the confirmation is of other disks", host.Name, "--disk", "DATA", "--confirm", stale)
	inspect()
	refuses("the confirmation is of another inspection than the last one; read it again", host.Name, "--confirm", stale)
	plan, word := readWord(t, ctx, d, "erase", host.Name)
	t.Log("\n" + plan)
	checkEraseBlock(t, host.Name, plan, word)
	assert.Equal(t, before, host.Disks())

	// The appliance loses its power while the root device is erased.
	t.Log("\n" + run(t, ctx, d, "firstlightd", "erase", host.Name, "--confirm", word))
	refuses("is being erased", host.Name, "--confirm", word)
	untilErasing(t, ctx, host, 0)
	t.Log(run(t, ctx, d, "firstlightd", "why", host.Name))
	require.NoError(t, d.PowerCut(ctx, scenario.Nothing, one))
	erased(t, ctx, d, host.Name, "/dev/sda serialNumber ROOT")
	disks := host.Disks()
	assert.Equal(t, []string{"nvme-format"}, disks[0].Erased)
	assert.Nil(t, disks[0].Holds)
	assert.Equal(t, before[1:], disks[1:], "a disk that nobody named was written to")

	// The daemon is killed while a disk that is named is erased.
	_, word = readWord(t, ctx, d, "erase", host.Name, "--disk", "DATA")
	run(t, ctx, d, "firstlightd", "erase", host.Name, "--disk", "DATA", "--confirm", word)
	untilErasing(t, ctx, host, 1)
	require.NoError(t, d.Kill(ctx, "firstlightd"))
	erased(t, ctx, d, host.Name, "/dev/sdb serialNumber DATA")
	disks = host.Disks()
	assert.Equal(t, []string{"overwrite"}, disks[1].Erased)
	assert.Equal(t, []string{"nvme-format"}, disks[0].Erased)
	assert.Equal(t, before[2], disks[2], "a disk that nobody named was written to")

	// The other server has noticed nothing, and all that was done can be read.
	assert.Equal(t, simulator.OnDisk, kept.State())
	assert.Equal(t, scenario.ImageSum(scenario.ImageA), kept.Disks()[0].Image)
	assert.Empty(t, kept.Disks()[0].Erased)
	audit := run(t, ctx, d, "firstlightd", "audit", "--user", "root")
	t.Log("\n" + audit)
	assert.Equal(t, 8, strings.Count(audit, "baremetalhosts.metal3.io/node"), "confirmed requests")
	events := run(t, ctx, d, "kubectl", "-n", "metal3", "get", "events", "--field-selector", "involvedObject.name="+host.Name,
		"-o", "custom-columns=REASON:.reason,MESSAGE:.message")
	t.Log("\n" + events)
	for _, reason := range []string{"EraseBegun", "DiskErased", "Erased"} {
		assert.Contains(t, events, reason)
	}
	run(t, ctx, d, "test", "-s", "/var/lib/firstlight/hosts/erased/"+host.Name+".json")
}

// uidAndTime are what each run prints otherwise, apart from the word.
var uidAndTime = regexp.MustCompile(`BareMetalHost \S+, inspected on \S+ \S+ UTC`)

// checkEraseBlock compares what was printed with the page, which shows one host, inspection and word.
func checkEraseBlock(t *testing.T, host, plan, word string) {
	t.Helper()
	plan = strings.Replace(plan, word, "zqfa-5hwd-k2mu", 1)
	plan = uidAndTime.ReplaceAllLiteralString(plan,
		"BareMetalHost 6a1d3f0e-94a1-4c54-9c6a-3b1f52a0c101, inspected on 2026-11-29 12:00:01 UTC")
	goldentest.CheckBlock(t, "../../../../docs/metal.md", "erase", "$ firstlightd erase "+host+"\n"+plan)
}

// erased waits until a host says that a disk was erased, and is available and without a pause again.
func erased(t *testing.T, ctx context.Context, d *scenario.Scenario, name, disk string) {
	t.Helper()
	began := time.Now()
	statusReads(t, ctx, d, name, "was erased: "+disk)
	follow(t, ctx, d, began, func(hosts map[string]metal3api.BareMetalHost) bool {
		h := hosts[name]
		_, paused := h.Annotations[metal3api.PausedAnnotation]
		_, asked := h.Annotations[metal3api.InspectAnnotationPrefix]
		return h.Status.Provisioning.State == metal3api.StateAvailable && !paused && !asked
	})
}

// untilErasing waits until a disk of a server is half erased.
func untilErasing(t *testing.T, ctx context.Context, host *simulator.Server, disk int) {
	t.Helper()
	for !slices.Equal(host.Disks()[disk].Holds, []string{"data of an unknown kind"}) {
		require.NoError(t, ctx.Err())
		time.Sleep(100 * time.Millisecond)
	}
}

// TestAServerLosesItsPowerWhileItIsErased: it is begun again with another boot. The site names it, so that it is installed
// when its disk is blank, and its other disk is not written to.
func TestAServerLosesItsPowerWhileItIsErased(t *testing.T) {
	need(t)
	ctx, d := startFleet(t, "erase-cut", simulator.Config{Hosts: 1, BootTime: bootTime, WorkTime: eraseTime}, 40*time.Minute)
	host := d.Servers.Hosts()[0]
	host.SetDisks(
		simulator.Disk{Name: "/dev/sda", Serial: "ROOT", Size: 480e9, Holds: []string{"gpt", "ext4"}},
		simulator.Disk{Name: "/dev/sdb", Serial: "KEPT", Size: 960e9, Holds: []string{"xfs"}},
	)
	before, began := host.Disks(), time.Now()
	os := scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA))
	require.NoError(t, d.Begin(ctx, d.Servers.SiteDocument("eth0", os, `rootDevice: {serialNumber: "ROOT"}`)))
	statusReads(t, ctx, d, host.Name, "is not empty, it holds: gpt, ext4")
	_, word := readWord(t, ctx, d, "erase", host.Name)
	run(t, ctx, d, "firstlightd", "erase", host.Name, "--confirm", word)
	untilErasing(t, ctx, host, 0)
	time.Sleep(eraseTime / 4)
	host.Power(false)
	t.Logf("its power was cut after %.0f s", time.Since(began).Seconds())
	follow(t, ctx, d, began, scenario.AllInState(1, metal3api.StateProvisioned))
	disks := host.Disks()
	assert.Equal(t, []string{"overwrite"}, disks[0].Erased)
	assert.Equal(t, scenario.ImageSum(scenario.ImageA), disks[0].Image)
	assert.Equal(t, before[1], disks[1], "a disk that nobody named was written to")
	t.Log(run(t, ctx, d, "firstlightd", "why", host.Name))
}
