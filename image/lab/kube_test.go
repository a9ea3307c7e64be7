package lab_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab"
)

// Lines of the daemon's serial console by which the bring-up of Kubernetes is followed.
const (
	lineImages       = "firstlight: images-present: ok"
	lineControlPlane = "firstlight: control-plane: ok"
	lineNode         = "firstlight: node-ready: ok"
	linePods         = "firstlight: system-pods: ok"
)

// kubeMachine is a machine with the stick and no network card at all.
func kubeMachine(t *testing.T, kind string) *lab.Machine {
	return newMachine(t, lab.Config{Disks: []lab.Disk{{Image: needImage(t, kind), Bus: lab.USB, Bytes: 6 * gib}}})
}

// TestBringsUpKubernetes starts the stick in a machine without a network card: nothing can be fetched,
// and the node is Ready.
func TestBringsUpKubernetes(t *testing.T) {
	m := kubeMachine(t, "qemu")
	startsFrom(t, m)
	for _, line := range []string{lineImages, lineControlPlane, lineNode, linePods} {
		see(t, m, line)
		t.Logf("after %s of CPU time", m.CPU().Round(time.Second))
	}
	powerOff(t, m)
}

// TestKilledDuringBringUp cuts the power of one stick at moments spread over the bring-up, each later
// than the one before; then it comes up as if nothing had happened.
func TestKilledDuringBringUp(t *testing.T) {
	m := kubeMachine(t, "qemu-all")
	for _, moment := range []struct {
		name, line string
		later      time.Duration
	}{
		{"while images are imported", "firstlight: ssh-ready: ok", 10 * time.Second},
		{"images are there", lineImages, 0},
		{"while the control plane starts", lineImages, 20 * time.Second},
		{"the API answers", lineControlPlane, 0},
		{"the node is Ready", lineNode, 0},
		{"all runs", linePods, 5 * time.Second},
	} {
		require.NoError(t, m.Start(t.Context()), moment.name)
		see(t, m, moment.line)
		time.Sleep(moment.later)
		require.NoError(t, m.Kill())
		t.Logf("power cut: %s", moment.name)
	}
	startsFrom(t, m)
	see(t, m, linePods)
	powerOff(t, m)
}
