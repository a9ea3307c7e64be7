package scenario_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/image/lab/simulator"
)

// healthCheck has workers whose node is lost power-cycled, and replaced if that does not help.
const healthCheck = `
{apiVersion: infrastructure.cluster.x-k8s.io/v1beta2, kind: Metal3RemediationTemplate, metadata: {name: edge},
spec: {template: {spec: {strategy: {type: Reboot, retryLimit: 1, timeoutSeconds: 100}}}}}
---
{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineHealthCheck, metadata: {name: edge-md-0},
spec: {clusterName: edge, selector: {matchLabels: {cluster.x-k8s.io/deployment-name: edge-md-0}},
checks: {unhealthyNodeConditions: [{type: Ready, status: Unknown, timeoutSeconds: 20}]},
remediation: {templateRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta2, kind: Metal3RemediationTemplate, name: edge}}}}
`

// life is what becomes of a cluster, step by step.
type life struct {
	*systems
	told strings.Builder // what was done, and how long until it was so
}

// step does something, kills a part of the appliance meanwhile, and waits until so many machines run on Ready nodes.
func (l *life) step(what, kill string, nodes int, do func(), so func() bool) {
	l.t.Helper()
	began := time.Now()
	do()
	time.Sleep(5 * time.Second)
	require.NoError(l.t, l.d.Kill(l.ctx, kill))
	l.await(what, nodes, func() bool { return l.areReady(nodes) && so() })
	fmt.Fprintf(&l.told, "%4.0f s  %s; %s was killed\n", time.Since(began).Seconds(), what, kill)
}

// kubectl asks the appliance.
func (l *life) kubectl(args ...string) string {
	l.t.Helper()
	return run(l.t, l.ctx, l.d, "kubectl", append([]string{"-n", "metal3"}, args...)...)
}

// machines are the names of the machines with a label, sorted.
func (l *life) machines(selector string) []string {
	return slices.Sorted(slices.Values(strings.Fields(l.ask("kubectl", "-n", "metal3", "get", "machines", "-l", selector,
		"-o", "jsonpath={.items[*].metadata.name}"))))
}

const (
	controlPlanes = "cluster.x-k8s.io/control-plane"
	workers       = "cluster.x-k8s.io/deployment-name=edge-md-0"
)

// areNone reports whether none of these machines is left.
func (l *life) areNone(names []string, selector string) bool {
	now := l.machines(selector)
	return len(now) > 0 && !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(now, name) })
}

// serverOf is the server of a machine.
func (l *life) serverOf(machine string) *simulator.Server {
	l.t.Helper()
	_, name, _ := strings.Cut(l.kubectl("get", "metal3machine", machine, "-o", `jsonpath={.metadata.annotations.metal3\.io/BareMetalHost}`), "/")
	for _, h := range l.d.Servers.Hosts() {
		if h.Name == name {
			return h
		}
	}
	require.Fail(l.t, "no server", "of machine %s: %s", machine, name)
	return nil
}

// copyTemplate copies a template under another name, which is how a template is changed.
func (l *life) copyTemplate(kind, name string) (changed string) {
	l.t.Helper()
	changed = name + "-2"
	spec := l.kubectl("get", kind+"."+infrastructure[kind], name, "-o", "jsonpath={.spec}")
	kubectlApply(l.t, l.ctx, l.d, fmt.Sprintf(`{apiVersion: %s/v1beta2, kind: %s, metadata: {name: %s}, spec: %s}`, infrastructure[kind], kind, changed, spec))
	return changed
}

var infrastructure = map[string]string{
	"Metal3MachineTemplate": "infrastructure.cluster.x-k8s.io",
	"KubeadmConfigTemplate": "bootstrap.cluster.x-k8s.io",
}

// TestAClusterIsScaledUpgradedAndMended: what an owner does with a cluster of Cluster API, and what breaks in one. The
// appliance applies nothing, and one of its parts is killed at each step.
func TestAClusterIsScaledUpgradedAndMended(t *testing.T) {
	need(t)
	const servers = 5
	ctx, d := start(t, "life", servers, 90*time.Minute)
	l := &life{systems: newSystems(t, ctx, d)}
	require.NoError(t, d.Begin(ctx, "name: life\nnetworks: {provisioning: {interface: eth0}}\nclusters: []\n"))
	l.applyHosts()
	l.kubectl("annotate", "bmh", "--all", "firstlight.dev/overwrite=released")
	yes := func() bool { return true }
	kubectlApply(t, ctx, d, l.generate(1, 1))
	l.await("two machines run", 2, yes)
	l.logIn()
	l.until("two nodes are Ready", func() bool { return l.areReady(2) })
	first := l.machines(controlPlanes)

	l.step("2 workers instead of 1", "cluster-api", 3, func() { l.kubectl("scale", "machinedeployment", "edge-md-0", "--replicas=2") }, yes)
	l.step("3 control planes instead of 1", "apiserver", 5, func() { l.kubectl("scale", "kubeadmcontrolplane", "edge", "--replicas=3") }, yes)
	assert.Subset(t, l.machines(controlPlanes), first)

	l.testReboot()

	l.step("1 worker instead of 2", "operator", 4, func() { l.kubectl("scale", "machinedeployment", "edge-md-0", "--replicas=1") }, yes)
	l.step("1 control plane instead of 3", "bpa", 2, func() { l.kubectl("scale", "kubeadmcontrolplane", "edge", "--replicas=1") }, yes)

	before := l.machines(workers)
	l.step("another template of workers: each is replaced", "ironic", 2, func() {
		machines := l.copyTemplate("Metal3MachineTemplate", "edge-md-0")
		config := l.copyTemplate("KubeadmConfigTemplate", "edge-md-0")
		l.kubectl("patch", "machinedeployment", "edge-md-0", "--type=merge", "-p", fmt.Sprintf(
			`{"spec":{"template":{"spec":{"infrastructureRef":{"name":%q},"bootstrap":{"configRef":{"name":%q}}}}}}`, machines, config))
	}, func() bool { return l.areNone(before, workers) })
	before = l.machines(controlPlanes)
	l.step("another template of control planes: each is replaced", "firstlightd", 2, func() {
		l.kubectl("patch", "kubeadmcontrolplane", "edge", "--type=merge", "-p", fmt.Sprintf(
			`{"spec":{"machineTemplate":{"spec":{"infrastructureRef":{"name":%q}}}}}`, l.copyTemplate("Metal3MachineTemplate", "edge-control-plane")))
	}, func() bool { return l.areNone(before, controlPlanes) })

	broken := l.testReplacement()

	began := time.Now()
	l.deleteCluster()
	l.until("the hosts are inspected and free", func() bool { return l.areFree(servers) })
	fmt.Fprintf(&l.told, "%4.0f s  the Cluster is deleted: nothing is left of it, and its hosts are free\n", time.Since(began).Seconds())
	assert.NotEmpty(t, l.unhealthy(broken), "it may be chosen again")

	t.Log("\n" + l.told.String())
	goldentest.WriteBlock(t, "../../../../docs/cluster-api.md", "life", l.told.String())
}

// testReboot has the system of a worker stand still: its server is switched off and on, and that is all.
func (l *life) testReboot() {
	kubectlApply(l.t, l.ctx, l.d, healthCheck)
	machines := l.machines(workers)
	server := l.serverOf(machines[0])
	drives, boots := len(server.ReceivedDrives()), server.Counters().Boots
	l.step("a worker that stands still is switched off and on", "cluster-api", 5, func() {
		require.NoError(l.t, l.Hang(server.Name))
		l.until("its node is lost", func() bool {
			return strings.Contains(l.workload("get", "node", machines[0], "--no-headers"), "NotReady")
		})
	}, func() bool {
		return server.Counters().Boots > boots &&
			l.ask("kubectl", "-n", "metal3", "get", "metal3remediations,clusters", "-o", "name") == "cluster.cluster.x-k8s.io/edge\n"
	})
	assert.Equal(l.t, machines, l.machines(workers))
	assert.Equal(l.t, drives, len(server.ReceivedDrives()), "it was installed again")
	assert.Empty(l.t, l.unhealthy(server.Name))
}

// testReplacement has the system of the worker break for good: another server takes its place.
func (l *life) testReplacement() (broken string) {
	machines := l.machines(workers)
	server := l.serverOf(machines[0])
	l.step("a worker that does not come back is replaced", "apiserver", 2, func() {
		require.NoError(l.t, l.Destroy(server.Name))
		l.until("its node is lost", func() bool {
			return strings.Contains(l.workload("get", "node", machines[0], "--no-headers"), "NotReady")
		})
	}, func() bool { return l.areNone(machines, workers) })
	assert.NotEmpty(l.t, l.unhealthy(server.Name), "it may be chosen again")
	assert.NotEqual(l.t, server.Name, l.serverOf(l.machines(workers)[0]).Name)
	return server.Name
}

// unhealthy is what a remediation that gave up left on a host.
func (l *life) unhealthy(host string) string {
	return l.kubectl("get", "bmh", host, "-o", `jsonpath={.metadata.annotations.capm3\.metal3\.io/unhealthy}`)
}
