package lab_test

import (
	"testing"
	"time"

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
