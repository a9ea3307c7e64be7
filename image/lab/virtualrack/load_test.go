package virtualrack

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// loadFor is for how long an appliance is kept busy.
const loadFor = 15 * time.Minute

// TestABusyAppliance takes processor time away from the appliance of a whole rack, for a time, and cuts
// its power meanwhile. It gets slower, no part of it gives up, and in the end every node is proven.
func TestABusyAppliance(t *testing.T) {
	for _, c := range []struct {
		name string
		load func(command)
		lost bool // the API server was ended with the power
	}{
		{"a third of its processors", func(c command) {
			c.until(Appliance, "control-plane")
			c.run("throttle", Appliance, "--cpus", "0.66")
			time.Sleep(loadFor)
			c.run("throttle", Appliance)
		}, false},
		{"a third of its processors, and the power cut", func(c command) {
			c.until(Appliance, "control-plane")
			c.run("throttle", Appliance, "--cpus", "0.66")
			time.Sleep(loadFor / 2)
			c.cut()
			time.Sleep(loadFor / 2)
			c.run("throttle", Appliance)
		}, true},
		{"half a computer, and the power cut while two servers are inspected", func(c command) {
			c.run("throttle", "all", "--cpus", "0.5")
			c.until("node-1", "inspecting")
			c.until("node-2", "inspecting")
			c.cut()
			time.Sleep(loadFor)
			c.run("throttle", "all")
		}, true},
		{"burners beside its own programs", func(c command) {
			c.until(Appliance, "control-plane")
			c.run("ssh", Appliance, fmt.Sprintf("for i in 1 2 3 4; do systemd-run --quiet timeout %.0f sh -c 'while :; do :; done'; done", loadFor.Seconds()))
			time.Sleep(loadFor)
		}, false},
		{"the API server killed among burners, on a third of its processors", func(c command) {
			c.until(Appliance, "ready")
			c.run("throttle", Appliance, "--cpus", "0.66")
			c.run("ssh", Appliance, fmt.Sprintf("for i in 1 2 3 4 5 6 7 8; do systemd-run --quiet --slice=kubepods.slice "+
				"timeout %.0f sh -c 'while :; do :; done'; done", loadFor.Seconds()))
			c.run("ssh", Appliance, killAPIServer)
			c.run("throttle", Appliance)
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			rack := newCommand(t, "qemu-all")
			began := time.Now()
			rack.run("up", "--image", rack.image(), "--nodes", "2", "--cluster=false")
			c.load(rack)
			t.Logf("free %s after power on", time.Since(began).Round(time.Second))
			rack.up("--nodes", "2", "--cluster=false")
			t.Logf("proven %s after power on", time.Since(began).Round(time.Second))

			rack.installed("node-1", "node-2")
			if !c.lost {
				restarts := rack.run("kubectl", "get", "pod", "-n", "kube-system", "kube-apiserver-appliance", "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
				assert.Equal(t, "0", restarts, "the API server was started more than once")
			}
			t.Log("\n" + rack.run("kubectl", "get", "pods", "-A"))
		})
	}
}

// killAPIServer ends the API server and waits until another one is ready, under whatever load there is.
const killAPIServer = `
began=$(cut -d. -f1 /proc/uptime)
age() { echo $(($(cut -d. -f1 /proc/uptime) - began)); }
old=$(pgrep -x kube-apiserver)
kill -KILL "$old"
while [ -e "/proc/$old" ]; do sleep 1; done
until pgrep -x kube-apiserver >/dev/null; do sleep 1; done
echo "started again after $(age) s"
until kubectl get --raw /readyz >/dev/null 2>&1; do sleep 2; done
echo "ready after $(age) s"
`

// until waits for the phase of a machine. The deadline only ends a hung run.
func (c command) until(machine, phase string) {
	c.t.Helper()
	for began := time.Now(); ; time.Sleep(time.Second) {
		s := c.status()
		for _, m := range s.Machines {
			if m.Name == machine && m.Phase == phase {
				return
			}
		}
		require.False(c.t, s.Dead, s.Text)
		require.Less(c.t, time.Since(began), 90*time.Minute, "%s is not %s: %s", machine, phase, c.try("why"))
	}
}

// cut takes the power from the appliance, and gives it back.
func (c command) cut() {
	c.t.Helper()
	c.run("power", Appliance, "off")
	c.run("power", Appliance, "on")
}
