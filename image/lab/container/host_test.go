package container

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAvailableMemoryIsRead(t *testing.T) {
	assert.Equal(t, 2048, availableMiB("MemTotal:       24000000 kB\nMemAvailable:    2097152 kB\n"))
	assert.Zero(t, availableMiB("MemTotal: 1 kB\n"))
}

// TestHowASystemEnded: a PID namespace ends by these signals when its system restarts or switches off, see reboot(2).
func TestHowASystemEnded(t *testing.T) {
	type how struct{ restarts, isOff bool }
	for script, want := range map[string]how{
		"kill -HUP $$":  {restarts: true},
		"kill -INT $$":  {isOff: true},
		"exit 0":        {isOff: true},
		"kill -KILL $$": {},
		"exit 1":        {},
	} {
		// What runs the tests may ignore SIGHUP, as nohup does, and a child inherits that.
		err := exec.Command("env", "--default-signal=HUP,INT", "sh", "-c", script).Run()
		assert.Equal(t, want, how{Restarts(err), IsSwitchedOff(err)}, script)
	}
}
