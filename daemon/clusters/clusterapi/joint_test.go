package clusterapi

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pool gives the machines of the cluster addresses.
const pool = `apiVersion: ipam.metal3.io/v1alpha1
kind: IPPool
metadata: {name: edge, namespace: metal3}
spec: {clusterName: edge, namePrefix: edge, prefix: 24, pools: [{start: 10.9.0.10, end: 10.9.0.19}]}
`

// generate is the template of clusters with its variables. The etcd of the cluster is not its own, so that its control
// plane can grow without one that runs, and its machines get addresses.
func (r *rack) generate() string {
	at, err := url.Parse(r.api.URL)
	require.NoError(r.t, err)
	text := r.clusterctlWith([]string{
		"CONTROL_PLANE_ENDPOINT_HOST=" + at.Hostname(), "CONTROL_PLANE_ENDPOINT_PORT=" + at.Port(),
		"IMAGE_URL=http://172.22.0.1/images/debian-13.raw", "IMAGE_CHECKSUM=abc",
	}, "generate", "cluster", "edge", "-n", "metal3", "--kubernetes-version", "v1.36.3",
		"--control-plane-machine-count", "1", "--worker-machine-count", "1")
	for old, add := range map[string]string{
		"  kubeadmConfigSpec:\n": "    clusterConfiguration: {etcd: {external: {endpoints: [\"https://127.0.0.1:9\"], caFile: /a, certFile: /b, keyFile: /c}}}\n",
		"  metaData:\n":          "    ipAddressesFromPool: [{key: address, name: edge, apiGroup: ipam.metal3.io, kind: IPPool}]\n",
	} {
		require.Equal(r.t, 1, strings.Count(text, old), text)
		text = strings.ReplaceAll(text, old, old+add)
	}
	return text + "\n---\n" + pool
}

// The managers and the provider meet, on a rack of simulated hosts: a cluster is applied all at once, grows, shrinks and
// is deleted, and all of them are killed after each step.
func TestAClusterOnTheRack(t *testing.T) {
	r := newRack(t, 5)
	r.prepareWorkload()
	r.apply(r.generate())
	r.killAll()
	r.settles(1, 1)
	r.until("the cluster is provisioned", func() error {
		if phase := r.in("cluster", "edge", ".status.phase"); phase != "Provisioned" {
			return fmt.Errorf("it is %s", phase)
		}
		return nil
	})
	r.killAll()

	r.run("scale", "machinedeployment", "edge-md-0", "-n", "metal3", "--replicas=2")
	r.run("patch", "kubeadmcontrolplane", "edge", "-n", "metal3", "--type=merge", `--patch={"spec":{"replicas":3}}`)
	r.killAll()
	r.settles(3, 2)

	r.run("scale", "machinedeployment", "edge-md-0", "-n", "metal3", "--replicas=1")
	r.run("patch", "kubeadmcontrolplane", "edge", "-n", "metal3", "--type=merge", `--patch={"spec":{"replicas":1}}`)
	r.killAll()
	r.settles(1, 1)

	r.run("delete", "cluster", "edge", "-n", "metal3", "--wait=false")
	r.killAll()
	r.testNothingIsLeft()
}

// prepareWorkload makes the API server pass for that of the cluster: with its authority, and with what kubeadm leaves.
func (r *rack) prepareWorkload() {
	cert, err := os.ReadFile(r.api.CAFile)
	require.NoError(r.t, err)
	key, err := os.ReadFile(r.api.CAKeyFile)
	require.NoError(r.t, err)
	for _, name := range []string{"ca", "etcd", "apiserver-etcd-client"} {
		r.apply(fmt.Sprintf(`{apiVersion: v1, kind: Secret, type: cluster.x-k8s.io/secret, stringData: {tls.crt: %q, tls.key: %q},
metadata: {name: edge-%s, namespace: metal3, labels: {cluster.x-k8s.io/cluster-name: edge}}}`, cert, key, name))
	}
	r.apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: kubeadm-config, namespace: kube-system}, data: {ClusterConfiguration: ""}}`)
}

func (r *rack) testNothingIsLeft() {
	for _, kind := range []string{
		"cluster", "kubeadmcontrolplane", "machinedeployment", "machine", "kubeadmconfig", "metal3cluster", "metal3machine",
		"metal3dataclaim", "metal3data", "ipaddressclaim", "ipaddresses.ipam.cluster.x-k8s.io", "node",
	} {
		r.until("no "+kind+" is left", func() error {
			out, err := r.kubectl("", "get", kind, "-n", "metal3", "-o", "name")
			if err == nil && out != "" {
				err = errors.New("there is " + out)
			}
			return err
		})
	}
	r.until("all hosts are free", func() error {
		if claims := r.list("bmh", ".spec.consumerRef.name"); len(claims) > 0 {
			return fmt.Errorf("hosts are claimed by %v", claims)
		}
		return nil
	})
	require.Len(r.t, r.list("bmh", ".metadata.name"), 5)
	require.Equal(r.t, []string{"edge"}, r.list("metal3datatemplate", ".metadata.name"))
}
