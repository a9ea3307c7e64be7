package diagnose

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/verify/fact"
	"firstlight.dev/firstlight/pxe/boottrace"
)

func TestEverySituationHasItsCase(t *testing.T) {
	all := cases()
	seen := map[string]bool{}
	for _, s := range rules {
		assert.False(t, seen[s.name], "%s is there twice", s.name)
		seen[s.name] = true
		assert.Regexp(t, `^[a-z]+(-[a-z]+)*$`, s.name)
		assert.NotEmpty(t, s.meaning, s.name)
		v, ok := all[s.name]
		if !assert.True(t, ok, "%s has no case", s.name) {
			continue
		}
		r := Explain(v)
		assert.Equal(t, s.name, r.Rule, "%s: %s", s.name, r.Sentence)
		assert.NotEmpty(t, r.Sentence, s.name)
		assert.NotContains(t, r.Sentence, "%!", s.name)
		if r.Fails {
			assert.NotEmpty(t, r.Next, "%s needs a person and does not say for what", s.name)
		}
		assert.True(t, r.Percent >= 0 && r.Percent <= 100, "%s: %d", s.name, r.Percent)
	}
	for name := range all {
		assert.True(t, seen[name], "case %s is of no situation", name)
	}
}

// TestDocs keeps the table of docs/why.md as the code answers; -update writes it.
func TestDocs(t *testing.T) {
	var b strings.Builder
	b.WriteString("| situation | what is seen | it says | what to do |\n|---|---|---|---|\n")
	all := cases()
	cell := strings.NewReplacer("|", "\\|")
	for _, s := range rules {
		r := Explain(all[s.name])
		next := r.Next
		if next == "" {
			next = "nothing"
		}
		fmt.Fprintf(&b, "| `%s` | %s | node-1 %s | %s |\n", s.name, cell.Replace(s.meaning), cell.Replace(r.Sentence), cell.Replace(next))
	}
	goldentest.CheckPart(t, "../../../../docs/why.md", "situations", b.String())
}

// TestAnAgentFromADiscIsNotLookedForOnItsDisc: what it does without another boot reads no disc, and neither does loading
// its image.
func TestAnAgentFromADiscIsNotLookedForOnItsDisc(t *testing.T) {
	v := fromDisc(host("provisioning", 12))
	v.Ironic = &fact.Ironic{Heartbeat: ago(1), Step: "erase_devices_metadata", Power: "power on"}
	assert.Equal(t, "agent-at-work", Explain(v).Rule)
	v.Ironic.Heartbeat = ago(5)
	assert.Equal(t, "agent-silent", Explain(v).Rule)
	assert.Equal(t, "writing", Explain(fromDisc(wire("provisioning", 0, disc, image))).Rule)

	late := deadline(fromDisc(host("inspecting", 3)))
	assert.Equal(t, "disc-unread", Explain(late).Rule)
	late = deadline(fromDisc(wire("inspecting", 16, disc)))
	assert.Equal(t, "disc-silent", Explain(late).Rule)
	assert.Equal(t, "did not come up from its disc: its BMC read it, 90 of 150 MB, and no agent called", Explain(late).Sentence)
	again := deadline(fromDisc(wire("inspecting", 1, disc)))
	assert.Equal(t, "disc-booting", Explain(again).Rule, "the error is of the try before")

	foreign := fromDisc(host("inspecting", 1))
	foreign.Foreign = "DHCP server 172.22.0.250 answers on eth1: staying silent"
	assert.Equal(t, "disc-waiting", Explain(foreign).Rule, "it asks nobody for an address")
}

// TestARefusedFileIsNotCalledLoaded: what was asked for and not given is no boot program.
func TestARefusedFileIsNotCalledLoaded(t *testing.T) {
	r := Explain(wire("inspecting", 4, discover, offer, lease, boottrace.Mark{Step: boottrace.StepTFTP, Detail: "pxelinux.0", Refused: "there is no pxelinux.0"}))
	assert.Equal(t, "no-tftp", r.Rule)
	assert.Contains(t, r.Sentence, "loads no boot program (undionly.kpxe); it asked for pxelinux.0: there is no pxelinux.0")
}

// TestAServerOfImagesThatIsSilentIsNamed, in the words of an agent that never got a connection.
func TestAServerOfImagesThatIsSilentIsNamed(t *testing.T) {
	r := Explain(failed(host("provisioning", 5), "Image provisioning failed: Deploy step deploy.write_image failed on node 1-2. "+
		"10.9.9.9:80/x.raw cannot be reached: Connection to 10.9.9.9 timed out. (connect timeout=60)"))
	assert.Equal(t, "image-unreachable", r.Rule)
	r = Explain(failed(host("provisioning", 5), "Image provisioning failed: Deploy step deploy.deploy failed: Connection to agent failed: Failed to connect to the agent running on node 1-2. "+
		"172.22.0.33:9999/v1/commands/ cannot be reached: Connection refused"))
	assert.Equal(t, "error", r.Rule, "it was the agent that could not be reached")
}

// TestABMCThatDoesNothingIsNamed, also when Ironic says so of an inspection.
func TestABMCThatDoesNothingIsNamed(t *testing.T) {
	v := failed(host("inspecting", 5), "Failed to inspect hardware. Reason: unable to start inspection: Failed to set node power state to power on.")
	v.Host.ErrorType = "inspection error"
	assert.Equal(t, "power-refused", Explain(v).Rule)
}

// TestAServerThatLosesItsPowerWhileItIsWritten: it was heard, and is no more; when it boots again, that is told.
func TestAServerThatLosesItsPowerWhileItIsWritten(t *testing.T) {
	v := wire("provisioning", 5, script, kernel, initrd, image)
	v.BootTrace.Since, v.Ironic = ago(9), &fact.Ironic{Heartbeat: ago(5.2), Power: "power off"}
	v.Host.Since = ago(10)
	r := Explain(v)
	assert.Equal(t, "agent-silent", r.Rule)
	assert.Equal(t, "is provisioning, but its agent has not called since 11:54:48 UTC, and its power is off", r.Sentence)
	v.BootTrace.Since, v.BootTrace.Marks, v.BootTrace.Last = ago(1), []boottrace.Mark{discover}, boottrace.Mark{Step: boottrace.StepDiscover, Time: ago(1)}
	assert.Equal(t, "netbooting", Explain(v).Rule)
}

// TestWhatFailedBeforeIsSaidInTheNextTry: the operator forgets it when it begins anew.
func TestWhatFailedBeforeIsSaidInTheNextTry(t *testing.T) {
	v := wire("provisioning", 0, script, kernel, part)
	v.LastError = "Image provisioning failed: x"
	r := Explain(v)
	assert.Equal(t, "loading", r.Rule)
	assert.Equal(t, "loads its ramdisk, 12 of 80 MB; it is tried again, before that it failed: Image provisioning failed: x", r.Sentence)
	v.LastError = "can't be resumed by conductor firstlight"
	assert.Equal(t, "loads its ramdisk, 12 of 80 MB", Explain(v).Sentence, "no failure of the machine's")
}

// TestANodeSaysWhoCallsInItsName, next to what it does: noise of another machine makes no node fail.
func TestANodeSaysWhoCallsInItsName(t *testing.T) {
	claim := Refusal{"172.22.0.66 called in its name and was refused: x", ago(0)}
	v := wire("provisioning", 0, script, kernel, part)
	v.Claim = claim
	r := Explain(v)
	assert.Equal(t, "loading", r.Rule)
	assert.Equal(t, "loads its ramdisk, 12 of 80 MB; 172.22.0.66 called in its name and was refused: x", r.Sentence)
	assert.False(t, r.Fails)
	v.Claim.Time = ago(9)
	assert.Equal(t, "loads its ramdisk, 12 of 80 MB", Explain(v).Sentence, "it called before this try began")
	done := host("provisioned", 60)
	done.Verified, done.Claim = true, claim
	assert.NotContains(t, Explain(done).Sentence, "in its name")
}

// TestOldHostsAreNotToldAsOfNow, whatever they were.
func TestOldHostsAreNotToldAsOfNow(t *testing.T) {
	at := time.Date(2026, 3, 1, 10, 4, 5, 0, time.UTC)
	for name, v := range cases() {
		v.Silent = at
		r := Explain(v)
		if name == "not-in-site" || name == "not-matched" { // heard on the wire: no matter of the API's
			assert.Equal(t, name, r.Rule)
			continue
		}
		assert.Equal(t, "api-silent", r.Rule, name)
		assert.Contains(t, r.Sentence, "2026-03-01 10:04:05 UTC", name)
		assert.Equal(t, at, r.Since, name)
		assert.False(t, r.Fails, "%s: a node is judged by an old host", name)
	}
	for want, v := range map[string]View{
		"was installed and proven at": {Silent: at, Host: &fact.Host{State: "provisioned"}, Verified: true},
		"was provisioned at":          {Silent: at, Host: &fact.Host{State: "provisioned"}},
		"was not handed over at":      {Silent: at, Node: base().Node},
	} {
		assert.Contains(t, Explain(v).Sentence, want)
	}
}

func TestAnErrorThatBlinksStays(t *testing.T) {
	v := failed(host("provisioning", 5), "Error verifying image checksum")
	require.Equal(t, "checksum", Explain(v).Rule)
	v.LastError, v.Host.Error, v.Host.Operational = v.Host.Error, "", "OK" // the operator tries again
	assert.Equal(t, "checksum", Explain(v).Rule)
	v.Host.Errors, v.Host.State = 0, "deprovisioning" // first of all cleans up
	assert.Equal(t, "checksum", Explain(v).Rule)
	v.Host.State = "provisioning" // and is at it again
	assert.NotEqual(t, "checksum", Explain(v).Rule)
}

func TestAnOldBootIsNotTakenForThisOne(t *testing.T) {
	v := wire("inspecting", 30, discover, lease, tftp, script, kernel, initrd)
	v.Host.State, v.Host.Since = "provisioning", ago(2)
	assert.Equal(t, "firmware", Explain(v).Rule)
}

func TestATimeoutSaysHowFarItCame(t *testing.T) {
	for _, c := range []struct {
		marks []boottrace.Mark
		want  string
	}{
		{[]boottrace.Mark{discover}, "asked for an address and was given none"},
		{[]boottrace.Mark{discover, offer, lease}, "got an address and loaded nothing"},
		{[]boottrace.Mark{discover, offer, lease, tftp}, "loaded undionly.kpxe and asked for nothing more"},
		{[]boottrace.Mark{tftp, script, kernel, initrd}, "the agent in it never called"},
	} {
		assert.Contains(t, Explain(deadline(wire("inspecting", 30, c.marks...))).Sentence, c.want)
	}
	assert.Contains(t, Explain(deadline(host("inspecting", 30))).Sentence, "nothing was heard of it")
}

// A server that booted in vain is switched on again, and the error stays until it is inspected.
func TestATimeoutIsOverWhenItBootsAgain(t *testing.T) {
	for _, c := range []struct {
		minutes float64
		marks   []boottrace.Mark
		want    string
	}{
		{1, []boottrace.Mark{discover, offer, lease}, "netbooting"},
		{4, []boottrace.Mark{discover, offer, lease}, "boot-timeout"},
		{1, []boottrace.Mark{script, kernel, part}, "loading"},
		{9, []boottrace.Mark{tftp, script, kernel, initrd}, "ramdisk-starting"},
		{11, []boottrace.Mark{tftp, script, kernel, initrd}, "no-callback"},
	} {
		r := Explain(deadline(wire("inspecting", c.minutes, c.marks...)))
		assert.Equal(t, c.want, r.Rule, r.Sentence)
	}
}

// A node in service keeps its state, and both fingerprints and the command are in what is said of it.
func TestAChangedCertificateIsSaidOfANodeInService(t *testing.T) {
	v := host("provisioned", 60)
	v.Verified, v.Certificate = true, cases()["bmc-changed"].Certificate
	r := Explain(v)
	assert.Equal(t, "bmc-changed", r.Rule)
	assert.Equal(t, 90, r.Percent)
	assert.Contains(t, r.Sentence, "is in service and left alone")
	for _, print := range []string{v.Certificate.Pinned, v.Certificate.Other} {
		assert.Contains(t, r.Sentence, print)
	}
	assert.Contains(t, r.Next, "firstlightd bmc trust node-1 "+v.Certificate.Other)
	assert.Equal(t, ago(3), r.Since)
}

func TestProgress(t *testing.T) {
	half := Explain(wire("provisioning", 0, image))
	assert.Equal(t, 67, half.Percent)
	assert.Equal(t, "writes its image to disk, 500 of 1000 MB", half.Sentence)
}

func TestWhatStrangersSayIsHarmless(t *testing.T) {
	r := Explain(failed(host("preparing", 1), "a\x1b[2J\nb"+strings.Repeat(" x", 1000)))
	assert.NotContains(t, r.Sentence, "\x1b")
	assert.NotContains(t, r.Sentence, "\n")
	assert.Less(t, len(r.Sentence), 450)
}

// TestNothingIsLeftUnsaid: whatever is unknown, there is an answer and no crash.
func TestNothingIsLeftUnsaid(t *testing.T) {
	for name, v := range cases() {
		for _, take := range []func(*View){
			func(v *View) { v.BootTrace = nil }, func(v *View) { v.Host = nil }, func(v *View) { v.Ironic = nil }, func(v *View) { v.Node = nil },
			func(v *View) { v.Checks, v.Preflight = nil, nil }, func(v *View) { v.Host = nil; v.BootTrace = nil },
		} {
			part := v
			take(&part)
			r := Explain(part)
			assert.NotEmpty(t, r.Sentence, name)
			assert.NotEmpty(t, r.Rule, name)
		}
	}
}

func TestABMCThatHangsIsNamedBeforeIronicGivesItUp(t *testing.T) {
	v := failed(host("inspecting", 5), "Failed to inspect hardware. Reason: unable to start inspection: Redfish connection failed for node 7a3d: "+
		"Unable to connect to https://127.23.0.8:8443/redfish/v1/. Error: Read timed out. (read timeout=60)")
	assert.Equal(t, "bmc-gone", Explain(v).Rule)
}

// TestAnErasureThatFailedIsOfOneServer: the one that has taken its name since has nothing to be fixed.
func TestAnErasureThatFailedIsOfOneServer(t *testing.T) {
	for uid, failed := range map[string]bool{"uid-1": true, "uid-2": false} {
		r := Explain(View{
			Name:    "node-1",
			Host:    &fact.Host{Name: "node-1", UID: uid, State: "available"},
			Erasure: &metal3.Erasure{Host: "uid-1", Ended: time.Now(), Disks: []metal3.ErasedDisk{{}}},
		})
		assert.Equal(t, failed, r.Rule == "erase-failed", "%s: %s", uid, r.Rule)
	}
}

// TestTheTestsPageHasEveryWayToGetStuck: docs/tests.md says of each situation that needs a person what provokes it.
func TestTheTestsPageHasEveryWayToGetStuck(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/tests.md")
	require.NoError(t, err)
	all := cases()
	stuck := 0
	for _, r := range rules {
		if Explain(all[r.name]).Next == "" {
			continue
		}
		stuck++
		assert.True(t, strings.Contains(string(page), "`"+r.name+"`"), "docs/tests.md does not say what provokes %s", r.name)
	}
	assert.Greater(t, stuck, 40, "the situations were not read")
}
