package simulator_test

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/ipxe"
)

// netboot sets the boot override to the network and presses the button, as Ironic does.
func netboot(t *testing.T, h *simulator.Server) {
	t.Helper()
	b := console(t, h)
	b.do(http.MethodPatch, "/redfish/v1/Systems/1", `{"Boot": {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}}`, http.StatusOK)
	b.do(http.MethodPost, "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset", `{"ResetType": "On"}`, http.StatusNoContent)
}

func TestAHostIsInspectedAndInstalled(t *testing.T) {
	a := newAppliance(t)
	h := start(t, a, simulator.Config{Hosts: 1}).Hosts()[0]
	netboot(t, h)

	steps := a.command(t, h, "deploy.get_deploy_steps", map[string]any{"node": map[string]any{}, "ports": []any{}})
	assert.Equal(t, "SUCCEEDED", steps.Status)
	assert.Contains(t, steps.Result, "deploy_steps")
	require.Len(t, a.posted, 1)
	assert.Contains(t, a.posted[0]["inventory"].(map[string]any)["interfaces"].([]any)[0], "mac_address")
	assert.Zero(t, h.Counters().DiskWrites, "a disk was written before anybody asked for it")

	assert.Equal(t, "SUCCEEDED", a.write(t, h, "1", a.sum()).Status)
	assert.Contains(t, a.command(t, h, "standby.get_partition_uuids", map[string]any{}).Result, "root uuid")
	assert.Equal(t, []simulator.Disk{{Name: "/dev/sda", Serial: "DISK1", Size: 480 << 30, Image: a.sum(), Drive: true, Holds: []string{"gpt", "vfat", "ext4"}, Writes: 1}}, h.Disks())

	a.command(t, h, "standby.power_off", map[string]any{})
	eventually(t, h, "still on", func() bool { return h.State() == simulator.Off })
	b := console(t, h)
	b.do(http.MethodPost, "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset", `{"ResetType": "On"}`, http.StatusNoContent)
	eventually(t, h, "did not boot its disk", func() bool { return h.State() == simulator.OnDisk })
	c := h.Counters()
	assert.Equal(t, 3, c.BMCWrites)
	assert.Equal(t, 1, c.DiskWrites)
	assert.Equal(t, 2, c.Boots)
}

func TestAHostWithoutASystemBootsNothing(t *testing.T) {
	h := start(t, nil, simulator.Config{Hosts: 1}).Hosts()[0]
	h.Power(true)
	eventually(t, h, "still boots", func() bool { return h.State() == simulator.Nothing })
}

func TestStepsOfCleaningEraseTheDisks(t *testing.T) {
	a := newAppliance(t)
	h := start(t, a, simulator.Config{Hosts: 1}).Hosts()[0]
	h.SetDisks(simulator.Disk{Name: "/dev/sda", Image: "old"}, simulator.Disk{Name: "/dev/sdb", Image: "data"})
	netboot(t, h)
	done := a.command(t, h, "clean.execute_clean_step", map[string]any{"step": map[string]any{"step": "erase_devices_metadata", "interface": "deploy"}})
	assert.Equal(t, "SUCCEEDED", done.Status)
	assert.Contains(t, done.Result, "clean_step")
	for _, d := range h.Disks() {
		assert.Empty(t, d.Image, d.Name)
	}
	assert.Equal(t, 2, h.Counters().DiskWrites)
}

func TestTheDiskThatTheHintsNameIsWritten(t *testing.T) {
	a := newAppliance(t)
	h := start(t, a, simulator.Config{Hosts: 1}).Hosts()[0]
	h.SetDisks(simulator.Disk{Name: "/dev/sda", Serial: "A", Image: "data"}, simulator.Disk{Name: "/dev/sdb", Serial: "B"})
	netboot(t, h)
	hints := map[string]any{"properties": map[string]any{"root_device": map[string]any{"serial": "s== B"}}}
	a.command(t, h, "deploy.get_deploy_steps", map[string]any{"node": hints})
	assert.Equal(t, "SUCCEEDED", a.write(t, h, "1", a.sum()).Status)
	assert.Equal(t, "data", h.Disks()[0].Image)
	assert.Equal(t, a.sum(), h.Disks()[1].Image)

	hints["properties"] = map[string]any{"root_device": map[string]any{"serial": "s== C"}}
	a.command(t, h, "deploy.get_deploy_steps", map[string]any{"node": hints})
	none := a.write(t, h, "2", a.sum())
	assert.Equal(t, "FAILED", none.Status)
	assert.Contains(t, none.Error.Details, "no suitable device")
}

func TestADiskIsWrittenOnlyIfTheApplianceSaysSo(t *testing.T) {
	a := newAppliance(t)
	a.refuseDisk = "refused by the appliance: it is another disk"
	h := start(t, a, simulator.Config{Hosts: 1}).Hosts()[0]
	netboot(t, h)
	failed := a.write(t, h, "1", a.sum())
	assert.Equal(t, "FAILED", failed.Status)
	assert.Equal(t, a.refuseDisk, failed.Error.Details)
	assert.Zero(t, h.Disks()[0].Writes)
}

func TestAnImageOfAnotherDigestIsNotInstalled(t *testing.T) {
	for _, c := range []struct {
		name   string
		sum    string
		faults simulator.Faults
	}{
		{"the site names another", strings.Repeat("0", 64), simulator.Faults{}},
		{"it arrives damaged", "", simulator.Faults{Corrupt: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAppliance(t)
			h := start(t, a, simulator.Config{Hosts: 1}).Hosts()[0]
			h.SetFaults(c.faults)
			netboot(t, h)
			sum := c.sum
			if sum == "" {
				sum = a.sum()
			}
			failed := a.write(t, h, "1", sum)
			assert.Equal(t, "FAILED", failed.Status)
			assert.Equal(t, "ImageChecksumError", failed.Error.Type)
			assert.Contains(t, failed.Error.Details, "Image failed to verify against checksum")
			assert.Empty(t, h.Disks()[0].Image)
			assert.Equal(t, 3, h.Disks()[0].Writes, "once, and twice more as its command line says")
		})
	}
}

func TestADiskThatCannotBeWrittenIsNotInstalled(t *testing.T) {
	a := newAppliance(t)
	h := start(t, a, simulator.Config{Hosts: 1}).Hosts()[0]
	h.SetFaults(simulator.Faults{BadDisk: true})
	netboot(t, h)
	failed := a.write(t, h, "1", a.sum())
	assert.Equal(t, "FAILED", failed.Status)
	assert.Equal(t, "ImageDownloadError", failed.Error.Type)
	assert.Contains(t, failed.Error.Details, "Unable to write image to device /dev/sda")
	assert.Empty(t, h.Disks()[0].Image)
}

func TestAnAgentTrustsWhatItsRamdiskCarriesAndNobodyElse(t *testing.T) {
	a, other := newAppliance(t), newAppliance(t)
	other.ironic = a.ironic // the ramdisk of one, the Ironic of another
	h := start(t, other, simulator.Config{Hosts: 1}).Hosts()[0]
	netboot(t, h)
	eventually(t, h, "no word of the certificate", func() bool { return strings.Contains(events(h), "x509: certificate signed by unknown authority") })
	assert.Empty(t, a.posted)
	assert.Empty(t, a.given)
}

func TestAnAgentWithoutItsTokenLocksItselfDown(t *testing.T) {
	a := newAppliance(t)
	h := start(t, a, simulator.Config{Hosts: 1}).Hosts()[0]
	h.SetFaults(simulator.Faults{TokenStolen: true})
	netboot(t, h)
	eventually(t, h, "not locked down", func() bool { return strings.Contains(events(h), "locks itself down") })
	assert.Zero(t, h.Counters().Heartbeats)
	assert.Empty(t, a.callback)
}

func TestAnAgentObeysItsTokenOnly(t *testing.T) {
	a := newAppliance(t)
	f := start(t, a, simulator.Config{Hosts: 2})
	h, thief := f.Hosts()[0], f.Hosts()[1]
	netboot(t, h)
	netboot(t, thief)
	base, client := a.agentOf(t, h)
	response, err := client.Get(base + "/v1/commands/?agent_token=wrong")
	require.NoError(t, err)
	response.Body.Close()
	assert.Equal(t, http.StatusUnauthorized, response.StatusCode)

	a.agentOf(t, thief)
	uuid, mine := h.Identity()
	assert.Equal(t, "uuid-of-"+h.MAC, uuid)
	assert.Equal(t, token, mine)
	code, _, err := thief.Claim(t.Context(), uuid, "made up")
	require.NoError(t, err)
	assert.Equal(t, http.StatusBadRequest, code)
	thief.Power(false)
	_, _, err = thief.Claim(t.Context(), uuid, mine)
	assert.Error(t, err)
}

func TestAMuteAgentNeverCalls(t *testing.T) {
	a := newAppliance(t)
	h := start(t, a, simulator.Config{Hosts: 1}).Hosts()[0]
	h.SetFaults(simulator.Faults{Mute: true})
	netboot(t, h)
	eventually(t, h, "no ramdisk", func() bool { return h.State() == simulator.Ramdisk })
	h.Power(false)
	assert.Empty(t, a.posted)
}

// TestFirmwareUnderstandsTheScripts holds the simulator and package pxe/ipxe together.
func TestFirmwareUnderstandsTheScripts(t *testing.T) {
	mac, err := net.ParseMAC("52:54:01:00:00:01")
	require.NoError(t, err)
	ramdisk := pxe.Boot{Action: pxe.ActionRamdisk, Kernel: "k", Initrd: []string{"r0", "r1"}, Args: []string{"ipa-api-url=https://192.0.2.1:6385"}}
	for _, c := range []struct {
		boot pxe.Boot
		want string
	}{
		{pxe.Boot{Action: pxe.ActionRefuse, Reason: "why"}, "disk"},
		{pxe.Boot{Action: pxe.ActionDisk}, "disk"},
		{ramdisk, "http://192.0.2.1/k [http://192.0.2.1/r0 http://192.0.2.1/r1] https://192.0.2.1:6385"},
	} {
		text, err := ipxe.Render("http://192.0.2.1", mac, c.boot)
		require.NoError(t, err)
		assert.Equal(t, c.want, simulator.Understood(string(text)), c.boot.Action)
	}
	text, err := ipxe.Render("http://192.0.2.1", mac, pxe.Boot{Action: pxe.ActionWait, Reason: "not yet"})
	require.NoError(t, err)
	assert.Equal(t, "wait", simulator.Understood(string(text)))
}

// TestEveryHostHasAnAddress: a site of many hosts has a network that is large enough for them.
func TestEveryHostHasAnAddress(t *testing.T) {
	for _, n := range []int{1, 80, 81, 200} {
		f := start(t, nil, simulator.Config{Hosts: n, PlainBMC: true})
		os := `os: {url: "http://172.22.0.1/a.raw", sha256: "` + strings.Repeat("0", 64) + `", format: raw}`
		s, wrong := site.Load("site.yaml", []byte(f.SiteDocument("eth0", os)))
		require.Empty(t, wrong)
		network := s.WithDefaults().Networks.Provisioning
		free := network.DHCP.Range.Last.As4()
		first := network.DHCP.Range.First.As4()
		size := int(free[2])*256 + int(free[3]) - int(first[2])*256 - int(first[3]) + 1
		assert.GreaterOrEqual(t, size, n, "%d hosts", n)
	}
}
