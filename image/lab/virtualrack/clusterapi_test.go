package virtualrack

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/image/lab"
)

// machineCluster is the name of the cluster, and machineEndpoint its address.
const (
	machineCluster  = "edge"
	machineEndpoint = "172.22.0.200"
)

// hostObjects are a host for each node of a rack.
func hostObjects(rack Rack) string {
	var all strings.Builder
	for _, n := range rack.Nodes {
		mode := "legacy"
		if n.Firmware == lab.UEFI {
			mode = "UEFI"
		}
		fmt.Fprintf(&all, `---
apiVersion: v1
kind: Secret
metadata: {name: %[1]s-bmc, namespace: metal3}
stringData: {username: %[2]s, password: %[3]s}
---
apiVersion: metal3.io/v1alpha1
kind: BareMetalHost
metadata: {name: %[1]s, namespace: metal3}
spec:
  online: true
  bootMACAddress: "%[4]s"
  bootMode: %[5]s
  bmc: {address: "ipmi://%[6]s", credentialsName: %[1]s-bmc}
`, n.Name, bmcUser, documentPassword, n.Cards[0].MAC, mode, n.BMC)
	}
	return all.String()
}

// TestObjectsBecomeACluster has a site of networks alone, and the rack of make demo. The hosts and the Cluster are applied
// at once; nothing else is typed until the cluster is verified.
func TestObjectsBecomeACluster(t *testing.T) {
	c := newCommand(t, "qemu-all")
	rack := newEmptyRack(t, c, 2)
	c.run("up")
	c.until(Appliance, PhaseReady)
	c.afterReady("cluster-class-ready")
	c.afterReady("packages-ready")

	c.put("hosts.yaml", hostObjects(rack))
	s := transcript{command: c}
	s.record("CONTROL_PLANE_ENDPOINT_HOST=" + machineEndpoint + " clusterctl generate cluster " + machineCluster +
		" -n metal3 --flavor topology --kubernetes-version " + assets.KubernetesVersion +
		" --control-plane-machine-count 1 --worker-machine-count 1 >cluster.yaml")
	assert.Less(t, strings.Count(s.record("cat cluster.yaml"), "\n"), 35, "one field to a line")
	began := time.Now()
	s.record("kubectl apply -f hosts.yaml -f cluster.yaml")

	// Nothing is typed until it is there; what is asked meanwhile is for the test's log.
	s.text.WriteString(c.machinesReady(began))
	assert.Contains(t, s.record("clusterctl describe cluster "+machineCluster+" -n metal3"), "Machine metal3/")
	s.record("clusterctl get kubeconfig " + machineCluster + " -n metal3 >edge.conf")
	assert.Equal(t, 2, strings.Count(s.record("kubectl --kubeconfig edge.conf get nodes"), " Ready "))
	assert.Equal(t, 2, strings.Count(s.record("kubectl -n metal3 get bmh"), " provisioned "))

	assert.Empty(t, c.status().Outside, "frames were addressed to the world outside")
	t.Log("\n" + s.text.String())
	goldentest.WriteBlock(t, "../../../docs/cluster-api.md", "demo", s.text.String())
	all := c.processes()
	c.remove(all)
}

// afterReady waits until a stage that follows Ready holds.
func (c command) afterReady(stage string) {
	c.t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Second) {
		var document status.Document
		out, err := c.exec(c.t.Context(), "ssh", Appliance, "firstlightd status -o json").Output()
		if err == nil && json.Unmarshal(out, &document) == nil {
			for _, s := range document.Stages {
				if s.Name == stage && s.State == status.StateReady {
					return
				}
			}
		}
		require.Less(c.t, time.Since(began), 2*time.Hour, "%s does not hold\n%s", stage, c.try("why"))
	}
}

// machinesReady waits for the one cluster, and returns each of its messages with the time at which it came. The deadline
// only ends a hung run.
func (c command) machinesReady(began time.Time) string {
	c.t.Helper()
	var all strings.Builder
	for last := ""; ; time.Sleep(5 * time.Second) {
		for _, k := range c.status().Clusters {
			line := k.Phase + ", nodes " + k.Nodes + ": " + k.Why + k.Error
			if line != last {
				last = line
				fmt.Fprintf(&all, "%6s  %s\n", time.Since(began).Round(time.Second), line)
				c.t.Logf("%s  %s", time.Since(began).Round(time.Second), line)
			}
			if k.Phase == status.ClusterReady {
				return all.String()
			}
		}
		require.Less(c.t, time.Since(began), 3*time.Hour, "%s\n%s", last, c.try("why"))
	}
}
