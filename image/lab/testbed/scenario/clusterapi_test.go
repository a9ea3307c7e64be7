package scenario_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/image/lab/testbed/machines"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// template is what clusterctl makes a cluster of, as of the sources at hand.
const template = "../../../../assets/build/cluster-api/cluster-template.yaml"

// The endpoint of the cluster is the pool's only address.
const endpoint = "172.22.0.200"

const endpointPool = `
---
{apiVersion: ipam.metal3.io/v1alpha1, kind: IPPool, metadata: {name: endpoints, namespace: metal3},
spec: {namePrefix: endpoints, prefix: 24, pools: [{start: ` + endpoint + `, end: ` + endpoint + `}]}}
`

// generate is what clusterctl prints, with an endpoint from a pool and what machines in sandboxes want.
func (s *systems) generate(controlPlane, workers int) string {
	text, err := os.ReadFile(template)
	require.NoError(s.t, err)
	const given = `controlPlaneEndpoint: {host: "${CONTROL_PLANE_ENDPOINT_HOST}", port: ${CONTROL_PLANE_ENDPOINT_PORT:=6443}}`
	require.Contains(s.t, string(text), given)
	changed, err := machines.ForSandboxes(string(text))
	require.NoError(s.t, err)
	changed = strings.ReplaceAll(changed, given, "controlPlaneEndpointFromPool: {name: endpoints}")
	require.NoError(s.t, s.d.Sandbox.WriteFile("/root/template.yaml", []byte(changed+endpointPool), 0o644))
	return run(s.t, s.ctx, s.d, "env", "IMAGE_URL="+scenario.Boot+"/"+scenario.ImageA+".raw", "IMAGE_CHECKSUM="+scenario.ImageSum(scenario.ImageA),
		"clusterctl", "--kubeconfig", "/etc/kubernetes/admin.conf", "generate", "cluster", "edge", "-n", "metal3", "--from", "/root/template.yaml",
		"--kubernetes-version", assets.KubernetesVersion,
		"--control-plane-machine-count", fmt.Sprint(controlPlane), "--worker-machine-count", fmt.Sprint(workers))
}

var lineEnd = regexp.MustCompile(`(?m) +$`)

// applyHosts applies a host for each server, and waits until there is what machines become nodes by.
func (s *systems) applyHosts() {
	for _, stage := range []string{"cluster-api-ready", "packages-ready"} {
		_, err := s.d.Sandbox.AwaitStage(s.ctx, stage, s.t.Output())
		require.NoError(s.t, err)
	}

	kubectlApply(s.t, s.ctx, s.d, machines.Hosts(s.d))
	s.until("there is what nodes are set up by", func() bool {
		return s.ask("kubectl", "-n", "metal3", "get", "secret", "firstlight-node", "-o", "name") != ""
	})
}

// await waits until a cluster has so many machines, all of them running, and logs how they stand whenever that changes.
func (s *systems) await(what string, machines int, also func() bool) {
	s.t.Helper()
	began, said := time.Now(), ""
	s.until(what, func() bool {
		now := s.ask("kubectl", "-n", "metal3", "get", "machines", "-o",
			"custom-columns=NAME:.metadata.name,PHASE:.status.phase,NODE:.status.nodeRef.name")
		if now != said {
			said = now
			s.t.Logf("%.0f s\n%s", time.Since(began).Seconds(), now)
		}
		return strings.Count(now, "Running") == machines && strings.Count(now, "\n") == machines+1 && also()
	})
}

// workload is what kubectl prints of the workload cluster, "" if it fails.
func (s *systems) workload(args ...string) string {
	return s.ask("kubectl", append([]string{"--kubeconfig", "/root/edge.conf"}, args...)...)
}

// logIn gets the kubeconfig of the workload cluster.
func (s *systems) logIn() {
	config := run(s.t, s.ctx, s.d, "clusterctl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "kubeconfig", "edge", "-n", "metal3")
	require.NoError(s.t, s.d.Sandbox.WriteFile("/root/edge.conf", []byte(config), 0o600))
	assert.Contains(s.t, config, "https://"+endpoint+":6443")
}

// areReady reports whether the workload cluster has so many nodes, and all are Ready.
func (s *systems) areReady(nodes int) bool {
	now := s.workload("get", "nodes", "--no-headers")
	return strings.Count(now, " Ready ") == nodes && strings.Count(now, "\n") == nodes
}

// TestAClusterBootsFromItsObjects: nothing but objects is applied. Ironic installs simulated servers, the system on
// each reads its config drive with its own cloud-init, and by that alone they become a cluster: its endpoint floats,
// its packages and images are the appliance's, its pods have a network.
func TestAClusterBootsFromItsObjects(t *testing.T) {
	need(t)
	const servers = 3
	ctx, d := start(t, "objects", servers, 40*time.Minute)
	s := newSystems(t, ctx, d)
	require.NoError(t, d.Begin(ctx, "name: objects\nnetworks: {provisioning: {interface: eth0}}\nclusters: []\n"))
	s.applyHosts()
	kubectlApply(t, ctx, d, s.generate(1, servers-1))
	s.await("all machines run", servers, func() bool { return true })
	s.logIn()
	s.until("all nodes are Ready", func() bool { return s.areReady(servers) })
	s.until("all pods run", func() bool {
		return s.workload("-n", "kube-system", "wait", "--for=condition=Ready", "pods", "--all", "--timeout=30s") != ""
	})
	printed := "$ clusterctl describe cluster edge -n metal3\n" +
		lineEnd.ReplaceAllString(run(t, ctx, d, "clusterctl", "--kubeconfig", "/etc/kubernetes/admin.conf", "describe", "cluster", "edge", "-n", "metal3"), "") +
		"$ kubectl --kubeconfig edge.conf get nodes\n" + s.workload("get", "nodes") +
		"$ kubectl --kubeconfig edge.conf -n kube-system get pods\n" + s.workload("-n", "kube-system", "get", "pods")
	t.Log("\n" + printed)
	goldentest.WriteBlock(t, "../../../../docs/cluster-api.md", "boots", printed)

	s.deleteCluster()
	s.until("the hosts are inspected and free", func() bool { return s.areFree(servers) })
}

// deleteCluster deletes the cluster and waits until nothing is left of it.
func (s *systems) deleteCluster() {
	run(s.t, s.ctx, s.d, "kubectl", "-n", "metal3", "delete", "cluster", "edge", "--wait=false")
	s.until("the cluster is gone", func() bool {
		return s.ask("kubectl", "-n", "metal3", "get", "clusters,machines,ipaddresses.ipam.cluster.x-k8s.io", "-o", "name", "--ignore-not-found") == "" &&
			s.ask("kubectl", "get", "ns", "metal3", "-o", "name") != ""
	})
	assert.Empty(s.t, s.Systems(), "servers of a cluster that is gone run")
}

// areFree reports whether all hosts are inspected and nobody's.
func (s *systems) areFree(hosts int) bool {
	const state = "jsonpath={range .items[*]}{.status.provisioning.state}{.spec.consumerRef.name} {end}"
	return s.ask("kubectl", "-n", "metal3", "get", "bmh", "-o", state) == strings.Repeat("available ", hosts)
}

// TestASiteIsMadeByClusterAPI: a site names its nodes, and a cluster by Cluster API of them. Nothing is applied. From
// power on, the appliance registers and inspects the servers, writes the Cluster, and verifies what they became. Its power
// fails while the first of them becomes a control plane.
func TestASiteIsMadeByClusterAPI(t *testing.T) {
	need(t)
	ctx, d := start(t, "site-cluster-api", 2, 40*time.Minute)
	s := newSystems(t, ctx, d)
	s.changeClass()
	var site strings.Builder
	site.WriteString("name: edge-site\nnetworks: {provisioning: {interface: eth0}}\nnodes:\n")
	for _, h := range d.Servers.Hosts() {
		site.WriteString(h.SiteEntry(scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA))))
	}
	fmt.Fprintf(&site, "clusters:\n- name: edge\n  by: cluster-api\n  endpoint: %s\n  controlPlane: [{node: node1}]\n  workers: [{node: node2}]\n", endpoint)
	require.NoError(t, d.Begin(ctx, site.String()))

	began := time.Now()
	var cluster status.Cluster
	said, cut := "", false
	s.until("the cluster is ready", func() bool {
		document, err := d.Sandbox.Status(ctx)
		if err != nil || len(document.Clusters) != 1 {
			return false
		}
		cluster = document.Clusters[0]
		if now := strings.TrimSpace(cluster.State + " " + cluster.Nodes + " " + cluster.Text + " " + cluster.Error); now != said {
			said = now
			t.Logf("%.0f s  %s", time.Since(began).Seconds(), now)
		}
		if !cut && len(s.Systems()) == 1 {
			cut = true
			t.Log("power cut")
			require.NoError(t, d.PowerCut(ctx, scenario.Nothing, site.String()))
			s.changeClass()
		}
		return cluster.State == "ready"
	})
	assert.Equal(t, "2/2", cluster.Nodes)
	assert.True(t, cut, "the power did not fail")
	for _, h := range d.Servers.Hosts() {
		assert.Len(t, h.ReceivedDrives(), 1, "%s was installed more than once", h.Name)
	}
	t.Log("\n" + run(t, ctx, d, "firstlightd", "status"))
	t.Log("\n" + run(t, ctx, d, "kubectl", "-n", "metal3", "get", "cluster", "edge", "-o", `jsonpath={.metadata.annotations.firstlight\.dev/verification}`))
	t.Log("\n" + run(t, ctx, d, "clusterctl", "--kubeconfig", "/etc/kubernetes/admin.conf", "describe", "cluster", "edge", "-n", "metal3"))
}
