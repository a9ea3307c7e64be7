package clusterapi

import (
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/clusters/clusterapi/nodesetup"
)

// pool gives the machines of the cluster addresses.
const pool = `apiVersion: ipam.metal3.io/v1alpha1
kind: IPPool
metadata: {name: edge, namespace: metal3}
spec: {clusterName: edge, namePrefix: edge, prefix: 24, pools: [{start: 10.9.0.10, end: 10.9.0.19}]}
`

// generate is what `clusterctl generate cluster` prints, and a pool. The etcd of the cluster is not its own, so that its
// control plane can grow without one that runs, and its machines get addresses.
func (r *rack) generate(flavor string, controlPlane, workers int) string {
	return r.generateCluster("edge", flavor, controlPlane, workers, "edge") + "\n---\n" + pool
}

// generateCluster is generate for a cluster of any name, and for addresses from a pool that is there.
func (r *rack) generateCluster(name, flavor string, controlPlane, workers int, pool string) string {
	text := r.clusterctlWith([]string{
		"CONTROL_PLANE_ENDPOINT_HOST=" + r.host(), "CONTROL_PLANE_ENDPOINT_PORT=" + r.port(),
		"IMAGE_URL=http://172.22.0.1/images/debian-13.raw", "IMAGE_CHECKSUM=abc",
	}, "generate", "cluster", name, "-n", "metal3", "--flavor", flavor, "--kubernetes-version", "v1.36.3",
		"--control-plane-machine-count", strconv.Itoa(controlPlane), "--worker-machine-count", strconv.Itoa(workers))
	for at, add := range map[string]string{
		"metaData:\n": "  ipAddressesFromPool: [{key: address, name: " + pool + ", apiGroup: ipam.metal3.io, kind: IPPool}]\n",
	} {
		before, after, found := strings.Cut(text, at)
		require.True(r.t, found, text)
		indent := before[strings.LastIndex(before, "\n")+1:]
		text = before + at + indent + add + after
	}
	require.Regexp(r.t, localEtcd, text)
	return localEtcd.ReplaceAllString(text, `etcd: {external: {endpoints: ["https://127.0.0.1:9"], caFile: /a, certFile: /b, keyFile: /c}}`+"\n")
}

// localEtcd is the cluster's own, in the block style that clusterctl writes.
var localEtcd = regexp.MustCompile(`etcd:\n {8}local:\n(?: {10}.*\n)+`)

// host and port are the endpoint of the cluster.
func (r *rack) host() string { return r.endpoint().Hostname() }
func (r *rack) port() string { return r.endpoint().Port() }

func (r *rack) endpoint() *url.URL {
	at, err := url.Parse(r.api.URL)
	require.NoError(r.t, err)
	return at
}

// The managers and the provider meet, on a rack of simulated hosts that boot with the data they get: a cluster is applied
// all at once, grows, shrinks and is deleted, and managers and provider are killed at random and all together. The
// history of all objects says that each step came after what it needs, and that no host, index or address was ever used
// twice.
func TestAClusterOnTheRack(t *testing.T) {
	r := newRack(t, 5)
	r.prepareWorkload("edge")
	r.prepareNodeSetup()
	r.apply(r.generate("", 1, 1))
	r.killSome(4)
	r.settles(1, 1)
	r.until("the cluster is provisioned", func() error {
		if phase := r.in("clusters", "edge", ".status.phase"); phase != "Provisioned" {
			return fmt.Errorf("it is %s", phase)
		}
		return nil
	})
	r.killAll()

	r.run("scale", "machinedeployment", "edge-md-0", "-n", "metal3", "--replicas=2")
	r.run("patch", "kubeadmcontrolplane", "edge", "-n", "metal3", "--type=merge", `--patch={"spec":{"replicas":3}}`)
	r.killSome(4)
	r.settles(3, 2)
	r.testSteps()

	r.run("scale", "machinedeployment", "edge-md-0", "-n", "metal3", "--replicas=1")
	r.run("patch", "kubeadmcontrolplane", "edge", "-n", "metal3", "--type=merge", `--patch={"spec":{"replicas":1}}`)
	r.killAll()
	r.settles(1, 1)

	r.testDeletion()
	r.history.assertInvariants()
}

// prepareWorkload makes the API server pass for that of a cluster: with its authority.
func (r *rack) prepareWorkload(cluster string) {
	cert, err := os.ReadFile(r.api.CAFile)
	require.NoError(r.t, err)
	key, err := os.ReadFile(r.api.CAKeyFile)
	require.NoError(r.t, err)
	for _, name := range []string{"ca", "etcd", "apiserver-etcd-client"} {
		r.apply(fmt.Sprintf(`{apiVersion: v1, kind: Secret, type: cluster.x-k8s.io/secret, stringData: {tls.crt: %q, tls.key: %q},
metadata: {name: %s-%s, namespace: metal3, labels: {cluster.x-k8s.io/cluster-name: %[3]s}}}`, cert, key, cluster, name))
	}
}

// prepareNodeSetup is the daemon's part.
func (r *rack) prepareNodeSetup() {
	secret, err := nodesetup.Secret(nodesetup.Appliance{
		Addresses:   []netip.Addr{netip.MustParseAddr("172.22.0.1")},
		Authority:   []byte("certificate"),
		PackagesKey: []byte("key"),
	})
	require.NoError(r.t, err)
	require.NoError(r.t, r.full.Create(r.t.Context(), secret))
}

// testDeletion deletes a cluster of one control plane machine and one worker.
func (r *rack) testDeletion() {
	var first, worker string
	for _, name := range r.list("machines", ".metadata.name") {
		if strings.Contains(name, "-md-") {
			worker = name
		} else {
			first = name
		}
	}
	facts := r.stepsOfDeletion("edge", first, worker)
	all := r.history.ordered()

	r.run("delete", "cluster", "edge", "-n", "metal3", "--wait=false")
	r.killSome(3)
	r.testNothingIsLeft()
	r.history.print("deletion", r.history.assertOrder(facts, all[len(all)-1].revision, first))

	for _, name := range []string{"unproven", "taken"} {
		require.Equal(r.t, "1", r.in("baremetalhosts", name, ".metadata.generation"), "host %s was written to", name)
	}
}

// testNothingIsLeft waits until all of a cluster is gone but its Nodes: they would be gone with its API server.
func (r *rack) testNothingIsLeft() {
	for _, kind := range []string{
		"clusters", "kubeadmcontrolplanes", "machinedeployments", "machines", "kubeadmconfigs", "metal3clusters",
		"metal3machines", "metal3dataclaims", "metal3datas", "ipaddressclaims", "ipaddresses",
	} {
		r.until("no "+kind+" are left", func() error {
			if names := r.list(kind, ".metadata.name"); len(names) > 0 {
				return fmt.Errorf("there are %v", names)
			}
			return nil
		})
	}
	r.until("all hosts are free", func() error {
		if claims := r.claims(); len(claims) > 0 {
			return fmt.Errorf("hosts are claimed by %v", claims)
		}
		return nil
	})
	require.Len(r.t, r.list("baremetalhosts", ".metadata.name"), r.hosts+2)
	require.Equal(r.t, []string{r.template}, r.list("metal3datatemplates", ".metadata.name"))
}
