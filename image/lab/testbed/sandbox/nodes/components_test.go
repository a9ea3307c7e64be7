package nodes_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/clusters/kpa/builtin"
	"firstlight.dev/firstlight/daemon/clusters/kpa/plan"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

// onNode is kubectl on a control plane, with or without the appliance.
const onNode = "kubectl --kubeconfig /etc/kubernetes/admin.conf "

// labelled lists what Components have on the cluster, of every kind there is. Slices of Services take labels over from
// them, and are left out.
const labelled = `all=$(` + onNode + `api-resources --verbs=list -o name |
	grep -v -e '^events' -e '^endpoints$' -e '^endpointslices' -e '^componentstatuses$' -e 'metrics\.k8s\.io$' | paste -sd, -)
` + onNode + `get "$all" -A --ignore-not-found -l kpa.akraino.org/name `

// components reads all Components, as they are at one moment.
func (b *bench) components() ([]v1alpha1.Component, error) {
	out, err := b.Appliance.Run(b.ctx, "kubectl", "-n", "default", "get", "components", "-o", "json")
	if err != nil {
		return nil, err
	}
	var list v1alpha1.ComponentList
	err = json.Unmarshal([]byte(out), &list)
	return list.Items, err
}

// untilComponents asks for all Components until they are as wanted, and logs each change of a phase. An appliance that
// does not answer is asked again.
func (b *bench) untilComponents(what string, fits func([]v1alpha1.Component) bool) []v1alpha1.Component {
	b.t.Helper()
	began, said := time.Now(), ""
	var last error
	for ; b.ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
		all, err := b.components()
		if last = err; err != nil {
			continue
		}
		var phases []string
		for _, c := range all {
			phases = append(phases, c.Name+" "+c.Status.Phase)
		}
		if now := strings.Join(phases, ", "); now != said {
			said = now
			b.t.Logf("%4.0f s  %s", time.Since(began).Seconds(), said)
		}
		if fits(all) {
			return all
		}
	}
	require.NoError(b.t, b.ctx.Err(), "%s: %s (%v)", what, said, last)
	return nil
}

// countPhase is how many Components are in a phase by a status about what they ask for now.
func countPhase(all []v1alpha1.Component, phases ...string) (n int) {
	for _, c := range all {
		if c.Status.ObservedGeneration == c.Generation && slices.Contains(phases, c.Status.Phase) {
			n++
		}
	}
	return n
}

func hasComponent(all []v1alpha1.Component, name string) bool {
	return slices.ContainsFunc(all, func(c v1alpha1.Component) bool { return c.Name == name })
}

// missingHardware is what the sentence of an add-on names on a cluster that has no such hardware.
var missingHardware = map[string]string{
	"edge-sriov": "no node has the labels feature.node.kubernetes.io/network-sriov.capable=true",
	"edge-qat":   "no node has the labels feature.node.kubernetes.io/pci-0b40_8086.present=true",
}

// TestEveryAddOn: a Provisioning asks for all that the stick has, at once. Everything is installed, in its order, but for
// what has no hardware here, which is Skipped and says so. Then it asks for nothing: what depends on something goes before
// it, and nothing is left on the cluster but the kinds whose objects are their owners'.
func TestEveryAddOn(t *testing.T) {
	long(t)
	b := newWhole(t, "every", 2)
	for i, s := range b.Servers {
		b.host(i+1, s)
	}
	const devices = "cat /sys/bus/pci/devices/*/sriov_totalvfs 2>/dev/null | grep -v '^0$' | wc -l"
	hasDevices := strings.TrimSpace(b.on(b.Servers[0], devices)) != "0"

	names := builtin.Names()
	began := time.Now()
	b.provisionPlugins(strings.Join(names, ", "))
	all := b.untilComponents("all are Ready or Skipped", func(all []v1alpha1.Component) bool {
		return countPhase(all, v1alpha1.PhaseReady, v1alpha1.PhaseSkipped) == len(names)
	})
	t.Logf("all add-ons of the stick %s after they were asked for", time.Since(began).Round(time.Second))

	table := b.appliance("kubectl", "get", "components", "-A", "-o", "wide")
	t.Log("\n" + table)
	t.Log("\n" + b.appliance("firstlightd", "status"))
	require.Len(t, all, len(names))
	for _, name := range names {
		assert.True(t, hasComponent(all, "edge-"+name), name)
	}
	for _, c := range all {
		b.checkSentence(c, table, hasDevices)
	}
	assert.Equal(t, "PluginsAvailable", b.appliance("kubectl", "get", "bpa", "edge", "-o",
		`jsonpath={.status.conditions[?(@.type=="PluginsAvailable")].reason}`))
	t.Log("\n" + b.kubectl("top", "nodes"))
	t.Log("\n" + b.kubectl("get", "pods", "-A", "-o", "wide"))
	assert.Equal(t, []string{"master-1", "worker-2"}, b.ready())

	b.checkReverseRemoval()
}

// checkSentence: a Component says in the table what it says of its cluster.
func (b *bench) checkSentence(c v1alpha1.Component, table string, hasDevices bool) {
	b.t.Helper()
	if !assert.Len(b.t, c.Status.Clusters, 1, c.Name) {
		return
	}
	s := c.Status.Clusters[0]
	assert.Contains(b.t, table, c.Status.Message, c.Name)
	assert.Equal(b.t, s.Message, c.Status.Message, c.Name)

	missing, needsHardware := missingHardware[c.Name]
	if needsHardware && !hasDevices {
		assert.Equal(b.t, v1alpha1.PhaseSkipped, s.Phase, c.Name)
	}
	if needsHardware && s.Phase == v1alpha1.PhaseSkipped {
		assert.Equal(b.t, plan.ReasonRequirements, s.Reason, c.Name)
		assert.Equal(b.t, missing, s.Message, c.Name)
		return
	}
	assert.Equal(b.t, v1alpha1.PhaseReady, s.Phase, "%s: %s", c.Name, s.Message)
	ready, of, _ := strings.Cut(s.Objects, "/")
	assert.Equal(b.t, of, ready, c.Name)
	assert.NotEqual(b.t, "0", of, c.Name)
	assert.Equal(b.t, fmt.Sprintf("installed and healthy, %s objects", s.Objects), s.Message, c.Name)
}

// checkReverseRemoval: at no moment is something there without what it depends on; and all of it goes.
func (b *bench) checkReverseRemoval() {
	b.t.Helper()
	began := time.Now()
	b.requestPlugins("")
	b.untilComponents("all are removed", func(left []v1alpha1.Component) bool {
		for _, c := range left {
			for _, d := range c.Spec.DependsOn {
				assert.True(b.t, hasComponent(left, d.Name), "%s was removed before %s, which depends on it", d.Name, c.Name)
			}
		}
		return len(left) == 0
	})
	b.t.Logf("removed in %s", time.Since(began).Round(time.Second))
	b.until("bpa", "edge")

	first := b.Servers[0]
	b.await(first, labelled+"-o name", "^$")
	b.await(first, onNode+"-n kpa-system get configmaps,secrets -o name | grep /component- || true", "^$")
	kinds := b.on(first, onNode+"get customresourcedefinitions -o name")
	b.t.Log("\n" + kinds)
	assert.Contains(b.t, kinds, "/network-attachment-definitions.k8s.cni.cncf.io", "definitions are their owners'")
	assert.Contains(b.t, kinds, "/virtualmachines.kubevirt.io", "machines are their owners'")
	assert.NotContains(b.t, kinds, "/tenants.tenant.akraino.org")
	assert.Equal(b.t, []string{"master-1", "worker-2"}, b.ready())
}
