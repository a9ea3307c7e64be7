package bmcpassword

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/image/lab/simulator"
)

func TestThePasswordsOfAllBMCsAreReplaced(t *testing.T) {
	r := newRack(t, 3)
	rotation := r.start()
	r.round(rotation)
	assert.Equal(t, usual, r.servers[0].Password(), "nobody has asked")

	begun, err := rotation.Begin(nil)
	require.NoError(t, err)
	assert.Equal(t, 3, begun)
	_, err = rotation.Begin(nil)
	assert.ErrorIs(t, err, ErrRotating)
	r.finish(rotation)
	for _, s := range r.servers {
		assert.Zero(t, s.Counters().BMCRefused, "a wrong password was tried")
		assert.Equal(t, 1, s.Counters().BMCPasswords)
	}

	before := r.servers[0].Password()
	begun, err = rotation.Begin([]string{"node1"})
	require.NoError(t, err)
	assert.Equal(t, 1, begun)
	r.finish(rotation)
	assert.NotEqual(t, before, r.servers[0].Password())
	assert.Equal(t, 1, r.servers[1].Counters().BMCPasswords, "nobody asked for that one")
}

// TestTheAnswerOfABMCIsLost: it has the next password, and nobody knows.
func TestTheAnswerOfABMCIsLost(t *testing.T) {
	r := newRack(t, 1)
	rotation := r.start()
	_, err := rotation.Begin(nil)
	require.NoError(t, err)
	r.servers[0].SetFaults(simulator.Faults{LostAnswer: true})
	r.round(rotation)
	assert.NotEqual(t, usual, r.servers[0].Password())
	assert.NotEmpty(t, rotation.Notes())
	assert.Equal(t, usual, r.secrets["node1"])
	r.servers[0].SetFaults(simulator.Faults{})
	r.now = r.now.Add(tryWindow)
	r.finish(r.start())
	assert.Zero(t, r.servers[0].Counters().BMCRefused)
}

// TestABMCThatRefusesKeepsItsPassword everywhere, and is named with the reason, which quotes no password.
func TestABMCThatRefusesKeepsItsPassword(t *testing.T) {
	r := newRack(t, 1)
	rotation := r.start()
	_, err := rotation.Begin(nil)
	require.NoError(t, err)
	next := r.kept(0).Next
	r.servers[0].SetFaults(simulator.Faults{FixedLogin: true})
	for range 3 {
		r.round(rotation)
	}
	assert.Equal(t, usual, r.servers[0].Password())
	assert.Equal(t, usual, r.secrets["node1"])
	assert.Zero(t, r.servers[0].Counters().BMCRefused)
	require.Len(t, r.start().Notes(), 1)
	assert.Contains(t, r.start().Notes()[0], "The password of the BMC of node1 was not replaced: ")
	assert.Contains(t, r.start().Notes()[0], "The value [redacted] of the property Password is not accepted.")
	assert.NotContains(t, r.log.String(), next)

	r.servers[0].SetFaults(simulator.Faults{})
	_, err = rotation.Begin(nil)
	require.NoError(t, err)
	r.finish(rotation)
}

// TestABMCThatTakesNoPasswordIsAskedTwiceAnHour at most, and nothing is forgotten.
func TestABMCThatTakesNoPasswordIsAskedTwiceAnHour(t *testing.T) {
	r := newRack(t, 1)
	rotation := r.start()
	_, err := rotation.Begin(nil)
	require.NoError(t, err)
	next := r.kept(0).Next
	r.servers[0].SetFaults(simulator.Faults{LostAnswer: true})
	r.round(rotation)
	r.servers[0].SetFaults(simulator.Faults{Password: "somebody changed it"})
	const hours = 4
	for range hours * 6 {
		r.round(r.start()) // a daemon that starts over and over
		r.now = r.now.Add(10 * time.Minute)
	}
	assert.LessOrEqual(t, r.servers[0].Counters().BMCRefused, hours*triesPerWindow)
	assert.Equal(t, next, r.kept(0).Next)

	r.servers[0].SetFaults(simulator.Faults{})
	r.finish(r.start())
	assert.Equal(t, next, r.servers[0].Password())
}

// TestAWrongPasswordOfTheSiteReplacesNothing: the BMC was told nothing, and the site's password stays in effect.
func TestAWrongPasswordOfTheSiteReplacesNothing(t *testing.T) {
	r := newRack(t, 1)
	rotation := r.start()
	r.servers[0].SetFaults(simulator.Faults{Password: "another one"})
	_, err := rotation.Begin(nil)
	require.NoError(t, err)
	r.round(rotation)
	assert.Equal(t, 1, r.servers[0].Counters().BMCRefused)
	require.Len(t, rotation.Notes(), 1)
	assert.Contains(t, rotation.Notes()[0], "refuses the password")
	assert.Empty(t, r.kept(0).Next)
	assert.Equal(t, usual, rotation.Site(&r.site).Nodes[0].BMC.Password.Reveal())
}

// TestIronicIsWaitedFor while it works on a host.
func TestIronicIsWaitedFor(t *testing.T) {
	r := newRack(t, 2)
	rotation := r.start()
	_, err := rotation.Begin(nil)
	require.NoError(t, err)
	r.busy["node2"] = "its host is inspecting"
	for range 3 {
		r.round(rotation)
	}
	assert.NotEqual(t, usual, r.servers[0].Password())
	assert.Equal(t, usual, r.servers[1].Password())
	assert.Equal(t, []string{"The passwords of BMCs are being replaced; it is waited for 1: node2: its host is inspecting"}, rotation.Notes())
	r.busy = nil
	r.finish(rotation)
}

// TestWhatTheOwnerWritesWins over what the appliance has made of the password before; and that comes back with it.
func TestWhatTheOwnerWritesWins(t *testing.T) {
	r := newRack(t, 1)
	rotation := r.start()
	_, err := rotation.Begin(nil)
	require.NoError(t, err)
	r.finish(rotation)
	b := r.site.Nodes[0].BMC
	in := func() string { return r.start().Site(&r.site).Nodes[0].BMC.Password.Reveal() }
	assert.Equal(t, r.servers[0].Password(), in())
	assert.Equal(t, usual, b.Password.Reveal(), "the site itself was changed")
	b.Password = site.NewSecret("the owner's")
	assert.Equal(t, "the owner's", in())
	b.Password = site.NewSecret(usual)
	assert.Equal(t, r.servers[0].Password(), in())

	// Edited before the BMC was asked, the site is right at once.
	_, err = rotation.Begin(nil)
	require.NoError(t, err)
	b.Password = site.NewSecret("the owner's")
	r.round(rotation)
	assert.Empty(t, r.kept(0).Next)
	assert.Equal(t, 1, r.servers[0].Counters().BMCPasswords)
}

// TestNodesWithOneBMCHaveOneAccount: it is asked once.
func TestNodesWithOneBMCHaveOneAccount(t *testing.T) {
	r := newRack(t, 1)
	second := r.site.Nodes[0]
	other := *second.BMC
	second.Name, second.BMC = "blade2", &other
	r.site.Nodes = append(r.site.Nodes, second, site.Node{Name: "without"})
	rotation := r.start()
	begun, err := rotation.Begin(nil)
	require.NoError(t, err)
	assert.Equal(t, 1, begun)
	for range 3 {
		rotation.Round(t.Context())
		for _, n := range rotation.Site(&r.site).Nodes[:2] {
			r.secrets[string(n.Name)] = n.BMC.Password.Reveal()
		}
	}
	assert.Equal(t, 1, r.servers[0].Counters().BMCPasswords)
	assert.Equal(t, r.servers[0].Password(), r.secrets["blade2"])
	assert.Empty(t, r.kept(0).Former)

	other.Password = site.NewSecret("different")
	_, err = rotation.Begin([]string{"node1", "without", "unheard-of"})
	assert.ErrorContains(t, err, "node1 and blade2 have the same BMC and user with different passwords")
	assert.ErrorContains(t, err, "without has no BMC")
	assert.ErrorContains(t, err, "unheard-of is no node of site.yaml")
}

func TestWhichBMCAnAddressIsOf(t *testing.T) {
	for address, want := range map[string]string{
		"ipmi://10.0.0.5":                                "10.0.0.5",
		"redfish://10.0.0.5/redfish/v1/Systems/1":        "10.0.0.5",
		"redfish://10.0.0.5:443/redfish/v1/Systems/2":    "10.0.0.5",
		"redfish+http://BMC-5/redfish/v1/Systems/1":      "bmc-5",
		"ipmi://10.0.0.5:6230":                           "10.0.0.5:6230",
		"ipmi://[fd00::5]":                               "fd00::5",
		"redfish+http://10.0.0.5:8000/redfish/v1/Syst/1": "10.0.0.5:8000",
	} {
		assert.Equal(t, want, bmcName(site.BMCAddress(address)), address)
	}
}

// TestATornAccountIsLeftAlone: it may be all that is left of a password.
func TestATornAccountIsLeftAlone(t *testing.T) {
	r := newRack(t, 1)
	_, err := r.start().Begin(nil)
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(r.dir, "bmc", "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, os.WriteFile(files[0], []byte(`{"bmc": `), 0o600))
	rotation := r.start()
	_, err = rotation.Begin(nil)
	assert.ErrorContains(t, err, files[0])
	r.round(rotation)
	require.Len(t, rotation.Notes(), 1)
	assert.Contains(t, rotation.Notes()[0], "node1: read account of a BMC: "+files[0])
	text, err := os.ReadFile(files[0])
	require.NoError(t, err)
	assert.Equal(t, `{"bmc": `, string(text))
	assert.Equal(t, usual, r.servers[0].Password())
}
