package install

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestAnApplianceThatBreaksIsStartedAgain: systemd restarts a unit that failed, and leaves one alone that is done.
func TestAnApplianceThatBreaksIsStartedAgain(t *testing.T) {
	for _, c := range []struct {
		script          string
		isAsked         bool
		again, isFailed bool
	}{
		{script: "kill -INT $$"},
		{script: "kill -HUP $$", again: true},
		{script: "kill -HUP $$", isAsked: true},
		{script: "kill -KILL $$", isFailed: true},
		{script: "kill -KILL $$", isAsked: true},
		{script: "exit 1", isFailed: true},
	} {
		ended := exec.Command("env", "--default-signal=HUP,INT", "sh", "-c", c.script).Run()
		again, err := whatFollows(c.isAsked, ended)
		assert.Equal(t, c.again, again, c)
		assert.Equal(t, c.isFailed, err != nil, "%v: %v", c, err)
	}
}

// TestCommandsOfTheUnitAreRefusedByHand: by hand they would take the interfaces from an appliance that runs.
func TestCommandsOfTheUnitAreRefusedByHand(t *testing.T) {
	for text, is := range map[string]bool{
		"0::/system.slice/firstlight.service\n":                                          true,
		"0::/system.slice/firstlight.service/.control\n":                                 true,
		"12:memory:/firstlight\n1:name=systemd:/system.slice/firstlight.service\n0::/\n": true,
		"0::/user.slice/user-0.slice/session-1.scope\n":                                  false,
		"12:memory:/x/firstlight.service\n1:name=systemd:/user.slice\n0::/\n":            false,
		"0::/system.slice/other-firstlight.service\n":                                    false,
		"": false,
	} {
		assert.Equal(t, is, isInUnit(text), text)
	}
	assert.ErrorContains(t, GiveBack(), "a command of the unit alone; use systemctl start firstlight.service")
	assert.ErrorContains(t, Supervise(t.Context(), nil, nil), "a command of the unit alone")
}
