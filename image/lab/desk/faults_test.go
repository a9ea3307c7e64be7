package desk

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// start makes a rack, without a cluster, and does not wait for it.
func (c command) start(args ...string) {
	c.t.Helper()
	c.t.Log(c.run(append([]string{"up", "--cluster=false", "--image", c.image()}, args...)...))
}

// until waits for a machine to be in a phase, or past it.
func (c command) until(machine string, phases ...string) Machine {
	c.t.Helper()
	for began := time.Now(); ; time.Sleep(time.Second) {
		s := c.status()
		for _, m := range s.Machines {
			for _, phase := range phases {
				if m.Name == machine && m.Phase == phase {
					c.t.Logf("%s is %s after %s", machine, phase, time.Since(began).Round(time.Second))
					return m
				}
			}
		}
		require.Less(c.t, time.Since(began), 100*time.Minute, "%s never was %v", machine, phases)
	}
}

// installed asks the nodes themselves.
func (c command) installed(nodes ...string) {
	c.t.Helper()
	for _, n := range nodes {
		assert.Equal(c.t, n+"\n", c.run("ssh", n, "hostname"))
	}
	assert.Empty(c.t, c.status().Outside, "frames were addressed to the world outside")
}

// TestTwoNodes installs a BIOS and a UEFI server at once, and makes a cluster of them.
func TestTwoNodes(t *testing.T) {
	c := newCommand(t)
	c.up("--nodes", "2", "--firmware", "mixed")
	c.installed("node-1", "node-2")
	assert.Contains(t, c.run("ssh", "node-2", "ls", "/sys/firmware"), "efi")
	assert.NotContains(t, c.run("ssh", "node-1", "ls", "/sys/firmware"), "efi")
	ready := c.run("ssh", Appliance, "kubectl --kubeconfig /opt/kud/multi-cluster/"+clusterName+"/artifacts/admin.conf wait --for=condition=Ready nodes --all --timeout=1m")
	assert.Equal(t, 2, strings.Count(ready, " condition met\n"), ready)
}

// TestLossyWire installs a node whose cables lose every tenth frame, each way.
func TestLossyWire(t *testing.T) {
	c := newCommand(t)
	c.start("--nodes", "1")
	c.run("cable", "node-1", "--loss", "10")
	c.up("--nodes", "1")
	c.installed("node-1")
	assert.Positive(t, c.until("node-1", PhaseInstalled, PhaseProven).Cables[0].Lost)
}

// TestPowerCutsOfTheAppliance cuts its power in every phase of a node; each time it comes back
// and the node goes on to its end.
func TestPowerCutsOfTheAppliance(t *testing.T) {
	c := newCommand(t)
	c.start("--nodes", "1")
	for _, phase := range []string{"registering", "inspecting", "provisioning", PhaseInstalled} {
		m := c.until("node-1", phase, PhaseProven)
		c.run("power", Appliance, "reset")
		t.Logf("the appliance's power was cut while node-1 was %s", m.Phase)
		c.until(Appliance, PhaseReady)
	}
	c.up("--nodes", "1")
	c.installed("node-1")
}

// TestANodeLosesItsPowerWhileItIsWritten cuts it once the image flows.
func TestANodeLosesItsPowerWhileItIsWritten(t *testing.T) {
	c := newCommand(t)
	c.start("--nodes", "1")
	before := c.until("node-1", "provisioning").Cables[0].Bytes
	for c.until("node-1", "provisioning").Cables[0].Bytes < before+100<<20 {
		time.Sleep(time.Second)
	}
	c.run("power", "node-1", "off")
	c.up("--nodes", "1")
	c.installed("node-1")
}

// TestADeadAndAFlappingNode: of three nodes one never answers, one is cut off now and then. The
// third is installed, and each of the others is named with its reason.
func TestADeadAndAFlappingNode(t *testing.T) {
	c := newCommand(t)
	c.start("--nodes", "3")
	c.run("cable", "node-2", "--cut")
	done := make(chan struct{})
	defer close(done)
	go func() {
		for cut := true; ; cut = !cut {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Second):
			}
			args := []string{"cable", "node-3"}
			if cut {
				args = append(args, "--cut")
			}
			_ = c.try(args...)
		}
	}()
	c.until("node-1", PhaseInstalled, PhaseProven)
	c.installed("node-1")
	why := c.run("why", "node-2")
	t.Log(why)
	assert.False(t, strings.Contains(why, PhaseProven))
}
