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

// TestWhatStartsAgain: a PID namespace ends by these signals when its system restarts or switches off, see reboot(2).
func TestWhatStartsAgain(t *testing.T) {
	for script, want := range map[string]bool{
		"kill -HUP $$": true, "kill -INT $$": false, "kill -KILL $$": false, "exit 1": false, "exit 0": false,
	} {
		// What runs the tests may ignore SIGHUP, as nohup does, and a child inherits that.
		err := exec.Command("env", "--default-signal=HUP", "sh", "-c", script).Run()
		assert.Equal(t, want, Restarts(err), script)
	}
}
