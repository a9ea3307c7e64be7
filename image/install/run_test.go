package install

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/process"
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

// TestACommandWaitsForAnApplianceThatStarts: its unit is active before, so that whoever started it gives the next command.
func TestACommandWaitsForAnApplianceThatStarts(t *testing.T) {
	asked, runs := 0, true
	i := Installation{Prefix: t.TempDir()}
	require.NoError(t, os.MkdirAll(i.path(Dir), 0o755))
	require.NoError(t, os.MkdirAll(i.path(runDir), 0o755))
	require.NoError(t, i.writeReceipt(Receipt{Complete: true}))
	i.Systemctl = func(...string) error {
		if asked++; asked == 3 {
			id, err := process.Identify(os.Getpid())
			require.NoError(t, err)
			require.NoError(t, writeJSON(i.path(runDir+"/"+runningFile), id))
		}
		if !runs {
			return errors.New("inactive")
		}
		return nil
	}
	command, err := i.Command(t.Context(), "true")
	require.NoError(t, err)
	assert.Contains(t, command.Args, strconv.Itoa(os.Getpid()))
	assert.Equal(t, 3, asked)

	require.NoError(t, os.Remove(i.path(runDir+"/"+runningFile)))
	runs = false
	_, err = i.Command(t.Context(), "true")
	assert.ErrorContains(t, err, "the appliance does not run; systemctl status firstlight.service says why")
	runs = true
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = i.Command(ctx, "true")
	assert.ErrorContains(t, err, "still starting")
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
