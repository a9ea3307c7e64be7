package verify

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
	"firstlight.dev/firstlight/daemon/metal/verify/shell"
)

func TestAMendedBMCOpensTheGateByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRack(t, 2)
		r.bmc["10.0.0.1"] = bmc.Silent
		e := r.engine(t, t.TempDir())
		changed := 0
		e.Changed = func() { changed++ }
		open, why := e.Gate("node-1")
		assert.False(t, open)
		assert.Contains(t, why, "being asked")
		end := start(t, e)
		defer end()
		pass(1)
		open, why = e.Gate("node-1")
		assert.False(t, open)
		assert.Equal(t, "bmc: the BMC is silent", why)
		assert.Equal(t, "bmc-silent", find(e.Nodes(), "node-1").Rule)
		open, _ = e.Gate("node-2")
		assert.True(t, open, "the other node does not go on")
		assert.Equal(t, 1, r.count("10.0.0.2"), "a login that held was repeated at once")
		assert.Equal(t, status.LaunchFailed, e.Launch().State)
		assert.Contains(t, e.Launch().Text, "node-1 is not switched on: the BMC is silent")

		before := changed
		r.change(func() { r.bmc["10.0.0.1"] = bmc.OK })
		pass(1)
		open, _ = e.Gate("node-1")
		assert.True(t, open)
		assert.Greater(t, changed, before, "nobody was told")
		assert.NotContains(t, e.Launch().Text, "the BMC is silent")
		open, why = e.Gate("nobody")
		assert.False(t, open)
		assert.Contains(t, why, "not in site.yaml")
	})
}

// TestAHostOnHoldPassesItsPreflightAfterARestart, such as that by which an update falls back: what was being done with it
// waits for that, in whatever state it was paused.
func TestAHostOnHoldPassesItsPreflightAfterARestart(t *testing.T) {
	for _, state := range []metal3api.ProvisioningState{
		metal3api.StateRegistering, metal3api.StateInspecting, metal3api.StatePreparing, metal3api.StateProvisioning,
		metal3api.StateDeprovisioning,
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRack(t, 1)
			h := metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
				Name:        "node-1",
				Annotations: map[string]string{metal3api.PausedAnnotation: label.Hold},
			}}
			h.Spec.Image = &metal3api.Image{URL: "http://172.22.0.1:6180/images/debian-13.raw"}
			h.Status.Provisioning.State = state
			r.hosts["node-1"] = h
			e := r.engine(t, t.TempDir())
			defer start(t, e)()
			pass(1)
			open, why := e.Gate("node-1")
			assert.True(t, open, "%s: %s", state, why)
		})
	}
}

// TestARefusedPasswordIsTriedOnce: for hours, over restarts, until somebody changes it or says so.
func TestARefusedPasswordIsTriedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, dir := newRack(t, 1), t.TempDir()
		password := func(s string) {
			r.change(func() {
				edited := *r.site
				edited.Nodes = slices.Clone(r.site.Nodes)
				b := *edited.Nodes[0].BMC
				b.Password = site.NewSecret(s)
				edited.Nodes[0].BMC = &b
				r.site = &edited
			})
		}
		password("wrong")
		for range 3 {
			e := r.engine(t, dir)
			end := start(t, e)
			pass(40)
			assert.Equal(t, 1, r.count("10.0.0.1"), "a refused password was tried again")
			n := find(e.Nodes(), "node-1")
			assert.Equal(t, "bmc-refused", n.Rule)
			assert.Contains(t, n.Next, "not tried again")
			end()
		}
		e := r.engine(t, dir)
		end := start(t, e)
		defer end()
		pass(1)
		e.Recheck() // a person says that something was mended
		pass(30)
		assert.Equal(t, 2, r.count("10.0.0.1"))
		password("right")
		open, _ := e.Gate("node-1")
		assert.False(t, open, "the gate is open for what was not asked yet")
		pass(1)
		assert.Equal(t, 3, r.count("10.0.0.1"))
		open, why := e.Gate("node-1")
		assert.True(t, open, why)
	})
}

func TestNobodyIsAskedBeforeTheHostsAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRack(t, 1)
		r.waits = "Kubernetes starts: the API server to answer"
		e := r.engine(t, t.TempDir())
		defer start(t, e)()
		pass(10)
		assert.Zero(t, r.count("10.0.0.1"))
		n := find(e.Nodes(), "node-1")
		assert.Equal(t, "appliance-starting", n.Rule)
		assert.Equal(t, "waits for the appliance: Kubernetes starts: the API server to answer", n.Why)
		assert.Zero(t, e.Launch().Elapsed, "the nodes' time runs before they are handed over")
	})
}

// TestOldHostsAreNoEvidence: with the API silent nobody is asked anything, the launch stays as it was, and
// its time stands still.
func TestOldHostsAreNoEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRack(t, 2)
		e := r.engine(t, t.TempDir())
		end := start(t, e)
		defer end()
		r.install("node-1")
		pass(2)
		assert.True(t, find(e.Nodes(), "node-1").Verified)
		asked, launch := r.count("10.0.0.2"), e.Launch()
		since := time.Now()
		r.change(func() { r.silent = since })
		r.install("node-2") // nobody can know
		pass(90)            // longer than the launch may take
		for name, says := range map[string]string{"node-1": "was installed and proven at ", "node-2": "was provisioned at "} {
			n := find(e.Nodes(), name)
			assert.Equal(t, "api-silent", n.Rule, name)
			assert.Contains(t, n.Why, says)
			assert.Contains(t, n.Next, "firstlightd status")
			assert.Equal(t, since, n.Since, name)
		}
		assert.False(t, find(e.Nodes(), "node-2").Verified, "it was judged by an old host")
		assert.Equal(t, asked, r.count("10.0.0.2"))
		assert.Equal(t, launch, e.Launch())
		r.change(func() { r.silent = time.Time{} })
		pass(2)
		assert.True(t, find(e.Nodes(), "node-2").Verified)
		assert.Equal(t, status.LaunchSucceeded, e.Launch().State)
	})
}

func TestAHostInServiceGetsNoPreflight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRack(t, 1)
		r.install("node-1")
		e := r.engine(t, t.TempDir())
		defer start(t, e)()
		pass(10)
		assert.Zero(t, r.count("10.0.0.1"))
		assert.Equal(t, status.LaunchSucceeded, e.Launch().State)
	})
}

// TestAHostThatIsGivenUpMayBeInstalledAnew: the site names another image, and its owner gives up the old one.
func TestAHostThatIsGivenUpMayBeInstalledAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRack(t, 1)
		r.install("node-1")
		e := r.engine(t, t.TempDir())
		defer start(t, e)()
		pass(1)
		ok, _ := e.Gate("node-1")
		assert.False(t, ok)
		r.change(func() {
			h := r.hosts["node-1"]
			h.Annotations = map[string]string{"firstlight.dev/allow-wipe": "true"}
			r.hosts["node-1"] = h
		})
		pass(1)
		ok, said := e.Gate("node-1")
		assert.True(t, ok, said)
	})
}

func TestLaunch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, dir := newRack(t, 10), t.TempDir()
		e := r.engine(t, dir)
		end := start(t, e)
		pass(1)
		for i := range 9 {
			r.install(fmt.Sprintf("node-%d", i+1))
		}
		r.change(func() { r.probe["node-9"] = shell.Locked })
		pass(12)
		l := e.Launch()
		assert.Equal(t, status.LaunchFailed, l.State, "8 of 10 is not launched, and that is told before the deadline")
		assert.Equal(t, 8, l.Verified)
		assert.Equal(t, "not launched, 8 of 10 nodes proven: node-9 is installed, but it is locked; node-10 is in site.yaml and has no BareMetalHost", l.Text)
		kept := r.kept["rack"]
		assert.Equal(t, "8/10", kept.Verified)
		assert.Equal(t, l.Text, kept.Message)

		end() // a restart of the daemon: what was proven stays so, and the time goes on
		pass(30)
		e = r.engine(t, dir)
		end = start(t, e)
		pass(1)
		assert.Equal(t, 8, e.Launch().Verified)
		assert.InDelta(t, 14*60, e.Launch().Elapsed, 70, "time counts only while the appliance runs")
		r.change(func() { r.probe["node-9"] = shell.Reached })
		r.install("node-10")
		pass(2)
		assert.Equal(t, "launched: 10 of 10 nodes proven", e.Launch().Text)
		stopped := e.Launch().Elapsed
		saves := r.saves
		pass(30)
		assert.Equal(t, stopped, e.Launch().Elapsed, "the time goes on after the end")
		assert.Equal(t, status.LaunchSucceeded, e.Launch().State)
		assert.Equal(t, saves, r.saves, "the API is written to though nothing changes")

		r.change(func() { // installed anew: to be proven anew
			h := r.hosts["node-3"]
			h.Status.OperationHistory.Provision.End = metav1.Now()
			r.hosts["node-3"] = h
			r.probe["node-3"] = shell.Silent
		})
		pass(1)
		assert.False(t, find(e.Nodes(), "node-3").Verified)
		end()
	})
}

func TestDeadlineNamesWhoeverIsNotProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRack(t, 2)
		e := r.engine(t, t.TempDir())
		defer start(t, e)()
		pass(1)
		r.install("node-1")
		r.change(func() {
			r.hosts["node-2"] = metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "node-2"},
				Status: metal3api.BareMetalHostStatus{Provisioning: metal3api.ProvisionStatus{State: metal3api.StateRegistering}}}
		})
		pass(50)
		assert.Equal(t, "1 of 2 nodes proven", e.Launch().Text)
		pass(10)
		assert.Equal(t, "not launched, 1 of 2 nodes proven: node-2 is not proven yet (registering)", e.Launch().Text)
		r.install("node-2")
		pass(1)
		assert.Equal(t, "launched, later than promised: 2 of 2 nodes proven", e.Launch().Text)
	})
}

func TestAFailureJustAfterTheStartIsAskedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRack(t, 1)
		r.probe["node-1"] = shell.Odd
		e := r.engine(t, t.TempDir())
		defer start(t, e)()
		r.install("node-1")
		time.Sleep(3 * time.Second)
		assert.NotEqual(t, status.LaunchFailed, e.Launch().State)
		r.change(func() { r.probe["node-1"] = "" })
		pass(1)
		assert.Equal(t, status.LaunchSucceeded, e.Launch().State)
	})
}

func TestAnEmptySiteIsNoSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRack(t, 0)
		e := r.engine(t, t.TempDir())
		defer start(t, e)()
		pass(30)
		assert.Equal(t, status.LaunchNothing, e.Launch().State)
		assert.Equal(t, "nothing to launch: site.yaml names no nodes", r.kept["rack"].Message)
	})
}

func TestALostPacketOfALoginFailsNothing(t *testing.T) {
	e, st := &Engine{}, &state{}
	say := func(key string, v bmc.Verdict) time.Duration {
		e.recordBMCAnswer(st, key, bmc.Answer{Verdict: v})
		return bmcAnswerTTL(st.bmc, st.silences)
	}
	assert.Zero(t, bmcAnswerTTL(bmc.Answer{}, 0))
	assert.Equal(t, bmcRecheckInterval, bmcAnswerTTL(bmc.Answer{Verdict: bmc.OK, On: true}, 0), "somebody may switch it off")
	assert.Less(t, say("a", bmc.Silent), settled, "one silence lasts until the launch fails")
	assert.Equal(t, bmcTTL, say("a", bmc.OK))
	assert.Equal(t, bmcSoon, say("a", bmc.Silent))
	assert.Equal(t, bmcRecheckInterval, say("a", bmc.Silent))
	assert.Equal(t, bmcSoon, say("b", bmc.Silent), "of another BMC")
	assert.Equal(t, bmcRecheckInterval, say("b", bmc.Busy))
}
