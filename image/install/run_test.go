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
